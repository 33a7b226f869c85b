#!/bin/sh
# Build the container image and keep it as an archive that every node's runtime can import.
#
#   build-image.sh [--output FILE] [further flags of `python -m cluster image`, such as --engine podman, --base IMAGE, --from-debian]
#
# Default: images/accelshare.tar in the repository. To import it on a node: ctr -n k8s.io images import FILE
set -eu
. "$(dirname "$0")/common.sh"

output=""
while [ $# -gt 0 ]; do
  case $1 in
    --output) [ $# -gt 1 ] || stop "$1 needs a value"; output=$2; shift 2 ;;
    -h | --help) usage 0 ;;
    *) break ;;
  esac
done
root=$(cd "$here/../.." && pwd)
output=${output:-$root/images/accelshare.tar}
mkdir -p "$(dirname "$output")"
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")

echo "1. Build"
make --silent -C "$root" image IMAGE_FLAGS="--output '$output' $*" || stop "the image could not be built" \
  "what was said is above; engines and bases: docs/how-to/images.md"
echo "2. Done: $output"
echo "   to import it on a node: ctr -n k8s.io images import $output"
