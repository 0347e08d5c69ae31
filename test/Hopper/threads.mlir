// RUN: attn-run %s --target=interpreter --entry=rotated --shape 0=64 --shape 1=64 --interleavings=7 --no-check 2>&1 | FileCheck %s --check-prefix=OK
// OK: ran
