#!/bin/sh
# Start SeaweedFS with its S3 interface on the network and everything else on loopback, and create the bucket.
# All access requires one of the two identities, which have access to this bucket only.
set -eu
umask 077
cat >"$IDENTITIES" <<END
{"identities": [
  {"name": "airflow",
   "credentials": [{"accessKey": "airflow", "secretKey": "$LAKE_AIRFLOW_SECRET_KEY"}],
   "actions": ["Read:$BUCKET", "Write:$BUCKET", "List:$BUCKET"]},
  {"name": "spark",
   "credentials": [{"accessKey": "spark", "secretKey": "$LAKE_SPARK_SECRET_KEY"}],
   "actions": ["Read:$BUCKET", "Write:$BUCKET", "List:$BUCKET"]}
]}
END
(
  until echo s3.bucket.list | weed shell -master=127.0.0.1:9333 2>/dev/null | grep -q "^ *$BUCKET[[:space:]]"; do
    echo "s3.bucket.create -name $BUCKET" | weed shell -master=127.0.0.1:9333 >/dev/null 2>&1 || true
    sleep 1
  done
) &
exec weed server -dir="$DATA" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
  -master.port=9333 -master.volumeSizeLimitMB=1024 -master.telemetry=false -volume.port=9340 -volume.max=0 \
  -filer -filer.port=8888 \
  -s3 -s3.ip.bind=0.0.0.0 -s3.port=8333 -s3.config="$IDENTITIES" -s3.iam=false -s3.autoCreateBucket=false \
  -s3.allowDeleteBucketNotEmpty=false -s3.port.iceberg=0 -s3.port.lance=0
