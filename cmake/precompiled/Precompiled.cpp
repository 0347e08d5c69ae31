// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// No code: the other targets use this one's precompiled header.
