// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Saved results and incoming gradients. See GradientInputs.h.

#include "GradientInputs.h"

using namespace llvm;
using namespace attn;

Expected<GradientInputs> GradientInputs::plan(mlir::func::FuncOp entry, mlir::func::FuncOp gradient,
                                              const Options &options) {
  GradientInputs result;
  auto types = getValueTypes(entry.getResultTypes(), "result");
  if (!types)
    return types.takeError();
  for (auto [position, type] : enumerate(*types))
    if (type.isTensor && attn::isFloat(type.kind)) {
      result.positions.push_back(position);
      result.types.push_back(type);
    }
  for (auto [name, entries] : {std::pair<StringRef, ArrayRef<std::pair<unsigned, std::string>>>{
                                   "grad-input", options.gradInputs},
                               {"grad-fill", options.gradFills}}) {
    if (Error error = checkPositions(name, entries, types->size(), "results", entry.getName()))
      return std::move(error);
    for (const auto &given : entries)
      if (!is_contained(result.positions, given.first))
        return createStringError("--" + name + " " + Twine(given.first) + ": result " +
                                 Twine(given.first) + " is not a float tensor");
  }
  if (Error error = checkPositions("grad-output", options.gradOutputs, gradient.getNumResults(),
                                   "results", gradient.getName()))
    return std::move(error);
  for (auto [position, type] : zip(result.positions, result.types)) {
    result.files.emplace_back();
    const std::string *path = findEntry(options.gradInputs, position);
    if (!path)
      continue;
    auto file = NpyFile::open(*path);
    if (!file)
      return file.takeError();
    if (Error error = file->checkKind(type.kind))
      return std::move(error);
    result.files.back() = std::move(*file);
  }
  return result;
}

Error GradientInputs::createIncoming(const HostTensor &result, unsigned index,
                                     const Options &options) {
  TensorPlacement placement;
  placement.pad = options.stridePad;
  placement.tight = options.guard;
  unsigned position = positions[index];
  auto tensor = HostTensor::create(types[index].kind, result.getShape(), placement);
  if (!tensor)
    return tensor.takeError();
  if (std::optional<NpyFile> &file = files[index]) {
    if (file->getShape() != result.getShape())
      return createStringError("expected the incoming gradient of result " + Twine(position) +
                               " to have its shape " + formatShape(result.getShape()) + ", got " +
                               formatShape(file->getShape()));
    if (Error error = file->copyTo(*tensor))
      return error;
    file.reset();
  } else {
    const std::string *how = findEntry(options.gradFills, position);
    // Random sequences of their own, apart from the arguments'.
    if (Error error = fillTensor(*tensor, how ? StringRef(*how) : StringRef("normal"), options,
                                 500000 + position, "--grad-fill " + Twine(position)))
      return error;
  }
  incoming.push_back(std::move(*tensor));
  return Error::success();
}

Error GradientInputs::create(const Call &forward, bool saved, const Options &options) {
  copies.reserve(positions.size());
  for (auto [index, position] : enumerate(positions)) {
    const HostTensor &result = forward.getResult(position);
    if (saved && options.stridePad) {
      TensorPlacement placement;
      placement.pad = options.stridePad;
      placement.tight = options.guard;
      auto copy = result.copy(placement);
      if (!copy)
        return copy.takeError();
      copies.push_back(std::move(*copy));
      savedResults.push_back(&copies.back());
    } else if (saved) {
      savedResults.push_back(&result);
    }
    if (Error error = createIncoming(result, index, options))
      return error;
  }
  return Error::success();
}

SmallVector<Operand> GradientInputs::getOperands() const {
  SmallVector<Operand> operands;
  for (auto [type, value] : zip(types, savedResults))
    operands.push_back({type, value});
  for (auto [type, value] : zip(types, incoming))
    operands.push_back({type, &value});
  return operands;
}
