#!/bin/sh
# Check that S3 responds and that the bucket exists.
set -eu
wget -q -O /dev/null http://127.0.0.1:8333/healthz
echo s3.bucket.list | weed shell -master=127.0.0.1:9333 2>/dev/null | grep -q "^ *$BUCKET[[:space:]]"
