#!/usr/bin/env bash
# Prints the bindings of a hostpin.h:
#
#   ./bindgen.sh ../../../include/hostpin.h > src/bindings.rs
#
# The same for bindgen 0.60 and 0.71.
set -euo pipefail
header=$1

options=(--use-core --ctypes-prefix core::ffi --no-layout-tests --with-derive-default --disable-header-comment
  --no-rustfmt-bindings)
# What later versions do by themselves.
if [[ $(bindgen --help) = *--size_t-is-usize* ]]; then options+=(--size_t-is-usize); fi

# A macro has no type, and bindgen can give all of them only one.
bits='HP_(REGISTER|CAP|VERSION)_.*'

print_bindings() {
  printf '/* Made from hostpin.h by bindgen.sh. */\n\n'
  bindgen "${options[@]}" --allowlist-var "$bits" "$header"
  bindgen "${options[@]}" --default-macro-constant-type signed --blocklist-item "$bits" --no-recursive-allowlist \
    --allowlist-var 'HP_.*' --allowlist-type 'hp_.*' --allowlist-function 'hp_.*' "$header"
}

# Edition 2024 wants the word "unsafe", which early versions do not print.
print_bindings | rustfmt --edition 2024 --config-path "$(dirname "$0")/.." | sed 's/^extern "C" {$/unsafe &/'
