#!/bin/sh
# Uninstall accelshare: restore kube-scheduler, then remove the certificates, the labels that the install set, and the rest.
# Running pods keep their cards.
#
#   delete.sh [--namespace NAME] [--release NAME] [--timeout TIME]
#
# Defaults: kube-system, accelshare, 15m. Safe to repeat. Set HELM and KUBECTL to use other programs than those on PATH.
set -eu
. "$(dirname "$0")/common.sh"

namespace=kube-system
release=accelshare
timeout=15m

while [ $# -gt 0 ]; do
  case $1 in
    --namespace | --release | --timeout)
      [ $# -gt 1 ] || stop "$1 needs a value" ;;
  esac
  case $1 in
    --namespace) namespace=$2; shift 2 ;;
    --release) release=$2; shift 2 ;;
    --timeout) timeout=$2; shift 2 ;;
    -h | --help) usage 0 ;;
    *) stop "there is no flag $1" "flags: $script --help" ;;
  esac
done
need "$HELM" "$KUBECTL"
need_cluster

ours=app.kubernetes.io/part-of=accelshare,app.kubernetes.io/instance=$release
echo "1. helm uninstall $release in namespace $namespace"
listed=$("$HELM" list --all --namespace "$namespace" --filter "^$release\$" --short) || stop \
  "helm cannot say whether there is a release $release in namespace $namespace, so nothing was deleted" \
  "look at: $HELM list --all --namespace $namespace"
if printf '%s\n' "$listed" | grep -Fqx -- "$release"; then
  "$HELM" uninstall "$release" --namespace "$namespace" --timeout "$timeout" || stop "not everything could be put back, so nothing was deleted" \
    "why: $KUBECTL logs -n $namespace job/accelshare-uninstall --all-containers --prefix" \
    "each control-plane node: $KUBECTL get configmap accelshare-scheduler-config -n $namespace -o yaml" \
    "when the cause is gone, the same command goes on: $script"
else
  echo "   there is no release $release in namespace $namespace"
  # The next step selects objects by label, some in the whole cluster. A running extender must not lose its permissions.
  homes=$("$KUBECTL" get deployments --all-namespaces --selector "$ours" --output=jsonpath='{.items[*].metadata.namespace}') || stop \
    "the cluster cannot say whether $release is in another namespace, so nothing was deleted"
  for home in $homes; do
    [ "$home" = "$namespace" ] || stop "$release is in namespace $home, so nothing was deleted" "say: $script --namespace $home"
    stop "$release is in namespace $home, but helm did not put it there, so nothing was deleted" \
      "how manifests are taken back: docs/how-to/install.md, Without helm"
  done
fi

# A failed Job keeps its ServiceAccount and permissions, so that you can examine it. They are not needed after the uninstall.
echo "2. What failed Jobs left behind"
"$KUBECTL" delete jobs,rolebindings,roles,serviceaccounts --namespace "$namespace" --selector "$ours" --ignore-not-found
"$KUBECTL" delete clusterrolebindings,clusterroles --selector "$ours" --ignore-not-found

echo "3. Done"
