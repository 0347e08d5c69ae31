// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arguments from files, shapes and seeds. See Arguments.h.

#include "Arguments.h"
#include "attn/Reference/ElementKind.h"
#include "llvm/ADT/StringExtras.h"
#include <cmath>

using namespace llvm;
using namespace attn;

Expected<SmallVector<ValueType>> attn::getValueTypes(mlir::TypeRange types, StringRef what,
                                                     bool memrefs) {
  SmallVector<ValueType> result;
  for (auto [index, type] : enumerate(types)) {
    auto tensor = dyn_cast<mlir::ShapedType>(type);
    bool accepted =
        isa<mlir::RankedTensorType>(type) || (memrefs && isa<mlir::MemRefType>(type)) || !tensor;
    std::optional<ElementKind> kind =
        getElementKind(tensor ? tensor.getElementType() : mlir::Type(type));
    if (!kind || !accepted) {
      std::string text;
      raw_string_ostream(text) << "expected " << what << " " << index
                               << " to be a ranked tensor or a scalar of f64, f32, f16, bf16, "
                                  "i1 to i64 or index, got "
                               << type;
      return createStringError(text);
    }
    result.push_back({*kind, bool(tensor)});
  }
  return result;
}

/// "2x8x?x64", as many numbers as the type has dimensions.
static Expected<ShapeRules::Shape> parseShape(StringRef text, unsigned position, size_t rank) {
  ShapeRules::Shape shape;
  SmallVector<StringRef> parts;
  if (text != "scalar")
    text.split(parts, 'x');
  for (StringRef part : parts) {
    int64_t size;
    if (part == "?")
      size = ShapeRules::unknown;
    else if (part.getAsInteger(10, size) || size < 0)
      return createStringError("expected --shape " + Twine(position) +
                               "=AxBx..., each a number or ?, got '" + text + "'");
    shape.push_back(size);
  }
  if (shape.size() != rank)
    return createStringError("expected argument " + Twine(position) + " to have " + Twine(rank) +
                             " dimensions, got " + Twine(shape.size()) + " in '" + text + "'");
  return shape;
}

Error attn::checkPositions(StringRef option, ArrayRef<std::pair<unsigned, std::string>> entries,
                           size_t count, StringRef what, StringRef function) {
  for (const auto &[position, text] : entries)
    if (position >= count)
      return createStringError("--" + option + " " + Twine(position) + ": '" + function + "' has " +
                               Twine(count) + " " + what);
  return Error::success();
}

Expected<Arguments> Arguments::plan(mlir::func::FuncOp function, const Options &options,
                                    ShapeRules &rules, bool memrefs) {
  Arguments result;
  auto types = getValueTypes(function.getArgumentTypes(), "argument", memrefs);
  if (!types)
    return types.takeError();
  result.types = std::move(*types);
  size_t count = result.types.size();
  StringRef name = function.getName();
  if (Error error = checkPositions("input", options.inputs, count, "arguments", name))
    return std::move(error);
  if (Error error = checkPositions("shape", options.shapes, count, "arguments", name))
    return std::move(error);
  if (Error error = checkPositions("fill", options.fills, count, "arguments", name))
    return std::move(error);
  bool inPlace = memrefs && function.getNumResults() == 0;
  if (Error error =
          checkPositions("output", options.outputs, inPlace ? count : function.getNumResults(),
                         inPlace ? "arguments" : "results", name))
    return std::move(error);
  for (auto [index, type] : enumerate(function.getArgumentTypes())) {
    auto tensor = dyn_cast<mlir::ShapedType>(type);
    size_t rank = tensor ? tensor.getRank() : 0;
    ShapeRules::Shape shape(rank, ShapeRules::unknown);
    if (const std::string *text = findEntry(options.shapes, index)) {
      auto parsed = parseShape(*text, index, rank);
      if (!parsed)
        return parsed.takeError();
      shape = *parsed;
    }
    result.files.emplace_back();
    if (const std::string *path = findEntry(options.inputs, index)) {
      auto file = NpyFile::open(*path);
      if (!file)
        return file.takeError();
      ArrayRef<int64_t> given = file->getShape();
      // A scalar may come as an array of one element.
      bool scalar = !tensor && given.size() <= 1 && (given.empty() || given[0] == 1);
      if (!scalar && given.size() != rank)
        return createStringError(*path + ": expected " + Twine(rank) + " dimensions for argument " +
                                 Twine(index) + ", got " + Twine(given.size()));
      if (Error error = file->checkKind(result.types[index].kind))
        return std::move(error);
      if (tensor)
        shape.assign(given.begin(), given.end());
      result.files.back() = std::move(*file);
    }
    result.shapes.push_back(shape);
  }
  if (Error error = rules.solve(result.shapes))
    return std::move(error);
  for (ArrayRef<int64_t> shape : result.shapes)
    if (auto elements = countElements(shape); !elements)
      return elements.takeError();
  return result;
}

namespace {
/// SplitMix64 (Steele, Lea and Flood, 2014): the same numbers on every machine.
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, 1).
  double uniform() { return double(next() >> 11) * 0x1p-53; }
  /// Box and Muller's transform; both of its numbers are used.
  double normal() {
    if (have) {
      have = false;
      return spare;
    }
    double radius = std::sqrt(-2 * std::log(1 - uniform()));
    double angle = 6.283185307179586 * uniform();
    spare = radius * std::sin(angle);
    have = true;
    return radius * std::cos(angle);
  }

private:
  uint64_t state;
  double spare = 0;
  bool have = false;
};
} // namespace

template <typename Next> static void fillWith(const HostTensor &tensor, Next next) {
  unsigned step = elementSize(tensor.getKind());
  tensor.forEachRow([&](char *row, int64_t length) {
    for (int64_t i = 0; i < length; ++i, row += step)
      storeFloat(tensor.getKind(), row, next());
  });
}

Error attn::fillTensor(const HostTensor &tensor, StringRef how, const Options &options,
                       uint64_t stream, const Twine &option) {
  Random random(options.seed * 1000003 + stream);
  if (how == "normal") {
    fillWith(tensor, [&] { return options.inputScale * random.normal(); });
    return Error::success();
  }
  if (how == "arange") {
    int64_t next = 0;
    fillWith(tensor, [&] { return double(next++); });
    return Error::success();
  }
  StringRef range = how;
  if (range.consume_front("uniform:")) {
    auto [lowText, highText] = range.split(':');
    double low, high;
    if (!lowText.getAsDouble(low) && !highText.getAsDouble(high) && low <= high) {
      fillWith(tensor, [&] { return low + (high - low) * random.uniform(); });
      return Error::success();
    }
  }
  double value;
  int64_t integer;
  if (!attn::isFloat(tensor.getKind()) && !how.getAsInteger(10, integer)) {
    unsigned step = elementSize(tensor.getKind());
    tensor.forEachRow([&](char *row, int64_t length) {
      for (int64_t i = 0; i < length; ++i, row += step)
        storeInteger(tensor.getKind(), row, integer);
    });
    return Error::success();
  }
  if (!how.getAsDouble(value) && attn::isFloat(tensor.getKind())) {
    fillWith(tensor, [&] { return value; });
    return Error::success();
  }
  return createStringError("expected " + option +
                           "=VALUE, arange, normal or uniform:LOW:HIGH, got '" + how + "'");
}

Error Arguments::create(const Options &options) {
  for (auto [index, type] : enumerate(types)) {
    TensorPlacement placement;
    placement.pad = type.isTensor ? options.stridePad : 0;
    placement.tight = options.guard;
    auto tensor = HostTensor::create(type.kind, shapes[index], placement);
    if (!tensor)
      return tensor.takeError();
    if (files[index]) {
      if (Error error = files[index]->copyTo(*tensor))
        return error;
      files[index].reset();
    } else {
      const std::string *how = findEntry(options.fills, index);
      StringRef standard = attn::isFloat(type.kind) ? "normal" : "0";
      if (Error error = fillTensor(*tensor, how ? StringRef(*how) : standard, options, index,
                                   "--fill " + Twine(index)))
        return error;
    }
    values.push_back(std::move(*tensor));
  }
  return Error::success();
}

SmallVector<Operand> Arguments::getOperands() const {
  SmallVector<Operand> operands;
  for (auto [type, value] : zip(types, values))
    operands.push_back({type, &value});
  return operands;
}
