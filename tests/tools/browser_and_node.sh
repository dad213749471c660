#!/usr/bin/env bash
# Installs Chromium, Node.js and the Node packages of docs/examples/env_server_node, with which the
# dashboard and the Node env server are tested. Quick if they are there; where it cannot install
# something it prints one line, and those tests are skipped.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
example=docs/examples/env_server_node

has() { command -v "$1" > /dev/null 2>&1; }

missing=()
has chromium || has chromium-browser || has google-chrome || has chrome || missing+=(chromium)
has node || missing+=(nodejs)
has npm || missing+=(npm)
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo -n)
  # The list of packages may be old, or not there at all.
  if ! has apt-get; then
    echo "tools: cannot install ${missing[*]}: no apt-get; install them by hand"
  elif ! { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "${missing[@]}"; } > .tools.log 2>&1; then
    echo "tools: cannot install ${missing[*]} with apt-get: $(tail -n 1 .tools.log); run it as root"
  fi
  rm -f .tools.log
fi
# package.json pins the versions.
if has npm && ! (cd "$example" && npm ls --silent > /dev/null 2>&1); then
  npm install --prefix "$example" --no-package-lock --no-audit --no-fund --silent ||
    echo "tools: cannot install the packages of $example with npm"
fi
exit 0
