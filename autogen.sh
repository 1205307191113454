#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Make configure and the Makefile.in files, from a fresh checkout.

set -e
cd "$(dirname "$0")"
exec autoreconf --force --install "$@"
