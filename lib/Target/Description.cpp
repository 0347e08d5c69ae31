// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tables of matrix instructions. See Description.h.

#include "attn/Target/Description.h"
#include "mlir/IR/Types.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"

using namespace llvm;
using namespace attn::target;

StringRef attn::target::getName(MmaType type) {
  switch (type) {
  case MmaType::BF16:
    return "bf16";
  case MmaType::F16:
    return "f16";
  case MmaType::F32:
    return "f32";
  case MmaType::F64:
    return "f64";
  }
  llvm_unreachable("all types have a name");
}

bool attn::target::isType(MmaType type, mlir::Type element) {
  switch (type) {
  case MmaType::BF16:
    return element.isBF16();
  case MmaType::F16:
    return element.isF16();
  case MmaType::F32:
    return element.isF32();
  case MmaType::F64:
    return element.isF64();
  }
  llvm_unreachable("all types are floats of MLIR");
}

const MmaAtom *attn::target::findMmaAtom(ArrayRef<MmaAtom> atoms, mlir::Type operands) {
  const MmaAtom *atom =
      find_if(atoms, [&](const MmaAtom &atom) { return isType(atom.operands, operands); });
  return atom == atoms.end() ? nullptr : atom;
}

std::string attn::target::listOperands(ArrayRef<MmaAtom> atoms) {
  SmallVector<StringRef> names;
  for (const MmaAtom &atom : atoms)
    if (!is_contained(names, getName(atom.operands)))
      names.push_back(getName(atom.operands));
  return join(names, " or ");
}
