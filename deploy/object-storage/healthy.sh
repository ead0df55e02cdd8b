#!/bin/sh
# S3 answers, and the bucket is there.
set -eu
wget -q -O /dev/null http://127.0.0.1:8333/healthz
echo s3.bucket.list | weed shell -master=127.0.0.1:9333 2>/dev/null | grep -q "^ *$BUCKET[[:space:]]"
