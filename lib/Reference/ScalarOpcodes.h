// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef ATTN_LIB_REFERENCE_SCALAROPCODES_H
#define ATTN_LIB_REFERENCE_SCALAROPCODES_H

#include "ScalarProgram.h"

namespace attn {
enum class ScalarProgram::Opcode : uint8_t {
  None,
#define ATTN_OPCODE(CODE, NAME) CODE,
#include "ScalarOpcodes.def"
};
} // namespace attn

#endif
