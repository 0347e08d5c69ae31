// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reading and writing .npy files. See Npy.h.

#include "attn/Runtime/Npy.h"
#include "attn/Runtime/FloatConvert.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace attn;

static constexpr StringLiteral magic("\x93NUMPY");

namespace {
/// Reads the few forms of Python literal that a header is made of.
class LiteralReader {
public:
  explicit LiteralReader(StringRef text) : rest(text) {}

  bool consume(StringRef token) {
    rest = rest.ltrim(" \t\n");
    return rest.consume_front(token);
  }
  bool atEnd() { return rest.trim(" \t\n").empty(); }

  bool readString(StringRef &value) {
    rest = rest.ltrim(" \t\n");
    if (rest.empty() || (rest[0] != '\'' && rest[0] != '"'))
      return false;
    size_t end = rest.find(rest[0], 1);
    if (end == StringRef::npos)
      return false;
    value = rest.slice(1, end);
    rest = rest.drop_front(end + 1);
    return true;
  }

  bool readBool(bool &value) {
    value = consume("True");
    return value || consume("False");
  }

  bool readTuple(SmallVectorImpl<int64_t> &values) {
    if (!consume("("))
      return false;
    while (!consume(")")) {
      rest = rest.ltrim(" \t\n");
      int64_t value;
      if (rest.consumeInteger(10, value) || value < 0)
        return false;
      values.push_back(value);
      if (!consume(",")) {
        // Without a comma a single number in brackets is no tuple.
        return values.size() > 1 && consume(")");
      }
    }
    return true;
  }

private:
  StringRef rest;
};
} // namespace

Error NpyFile::fail(const Twine &message) const {
  return createStringError(Twine(name) + ": " + message);
}

Error NpyFile::parseHeader(StringRef header) {
  LiteralReader reader(header);
  bool haveType = false, haveOrder = false, haveShape = false, fortran = false;
  StringRef type;
  auto malformed = [&] { return fail("malformed .npy header"); };
  if (!reader.consume("{"))
    return malformed();
  while (!reader.consume("}")) {
    StringRef key;
    if (!reader.readString(key) || !reader.consume(":"))
      return malformed();
    if (key == "descr" && !haveType) {
      haveType = true;
      if (!reader.readString(type))
        return fail("expected an array of plain numbers, got a structured type");
    } else if (key == "fortran_order" && !haveOrder) {
      haveOrder = true;
      if (!reader.readBool(fortran))
        return malformed();
    } else if (key == "shape" && !haveShape) {
      haveShape = true;
      if (!reader.readTuple(shape))
        return malformed();
    } else {
      return malformed();
    }
    if (!reader.consume(",")) {
      if (!reader.consume("}"))
        return malformed();
      break;
    }
  }
  if (!haveType || !haveOrder || !haveShape || !reader.atEnd())
    return malformed();
  if (fortran)
    return fail("expected C order, got Fortran order");
  if (type.starts_with(">"))
    return fail("expected little-endian numbers, got '" + type + "'");
  static constexpr StringLiteral known[] = {"f2", "f4", "f8", "i1", "i2", "i4",
                                            "i8", "u1", "u2", "u4", "u8", "b1"};
  StringRef bare = type.ltrim("<|=");
  if (type.size() - bare.size() > 1 || !is_contained(known, bare))
    return fail("expected float, integer or bool elements, got '" + type + "'");
  kind = bare[0];
  size = unsigned(bare[1] - '0');
  return Error::success();
}

Expected<NpyFile> NpyFile::open(StringRef path) {
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
  if (!buffer)
    return createStringError("cannot open '" + path + "': " + buffer.getError().message());
  return parse(std::move(*buffer), path);
}

Expected<NpyFile> NpyFile::parse(std::unique_ptr<MemoryBuffer> buffer, StringRef name) {
  NpyFile file;
  file.name = name.str();
  file.buffer = std::move(buffer);
  StringRef bytes = file.buffer->getBuffer();
  if (!bytes.consume_front(magic))
    return file.fail("not a .npy file");
  if (bytes.size() < 2)
    return file.fail("truncated .npy header");
  unsigned version = uint8_t(bytes[0]);
  bytes = bytes.drop_front(2);
  if (version < 1 || version > 3)
    return file.fail("expected .npy version 1, 2 or 3, got " + Twine(version));
  size_t lengthBytes = version == 1 ? 2 : 4;
  if (bytes.size() < lengthBytes)
    return file.fail("truncated .npy header");
  size_t length = version == 1 ? support::endian::read16le(bytes.data())
                               : support::endian::read32le(bytes.data());
  bytes = bytes.drop_front(lengthBytes);
  if (bytes.size() < length)
    return file.fail("truncated .npy header");
  if (Error error = file.parseHeader(bytes.take_front(length)))
    return std::move(error);
  bytes = bytes.drop_front(length);
  Expected<int64_t> count = countElements(file.shape);
  if (!count)
    return file.fail(toString(count.takeError()));
  uint64_t expected = uint64_t(*count) * file.size;
  if (bytes.size() != expected)
    return file.fail("expected " + Twine(expected) + " bytes of elements, got " +
                     Twine(bytes.size()) + (bytes.size() < expected ? " (truncated)" : ""));
  file.data = bytes.data();
  return file;
}

std::string NpyFile::getTypeName() const { return kind + std::to_string(size); }

/// The element at `data` as an integer; false where it does not fit.
static bool readInteger(char kind, unsigned size, const char *data, int64_t &value) {
  using namespace support::endian;
  bool isSigned = kind == 'i';
  switch (size) {
  case 1:
    value = isSigned ? int64_t(int8_t(*data)) : int64_t(uint8_t(*data));
    return true;
  case 2:
    value = isSigned ? int64_t(int16_t(read16le(data))) : int64_t(read16le(data));
    return true;
  case 4:
    value = isSigned ? int64_t(int32_t(read32le(data))) : int64_t(read32le(data));
    return true;
  default:
    value = int64_t(read64le(data));
    return isSigned || value >= 0;
  }
}

static double readFloat(unsigned size, const char *data) {
  using namespace support::endian;
  switch (size) {
  case 2:
    return halfToFloat(read16le(data));
  case 4:
    return floatFromBits(read32le(data));
  default:
    return bit_cast<double>(read64le(data));
  }
}

Error NpyFile::checkKind(ElementKind to) const {
  if (attn::isFloat(to) == (kind == 'f'))
    return Error::success();
  return fail("expected elements for " + elementName(to) + ", got '" + getTypeName() + "'");
}

Error NpyFile::copyTo(const HostTensor &tensor) const {
  ElementKind to = tensor.getKind();
  if (ArrayRef<int64_t>(shape) != tensor.getShape() &&
      !(tensor.getShape().empty() && ArrayRef<int64_t>(shape) == ArrayRef<int64_t>{1}))
    return fail("expected shape " + formatShape(tensor.getShape()) + ", got " + formatShape(shape));
  if (Error error = checkKind(to))
    return error;
  const char *from = data;
  unsigned step = elementSize(to);
  bool fits = true;
  bool same = (to == ElementKind::F32 && size == 4) || (to == ElementKind::F64 && size == 8);
  tensor.forEachRow([&](char *row, int64_t length) {
    if (kind == 'f' && same) {
      std::memcpy(row, from, size_t(length) * size);
      from += size_t(length) * size;
      return;
    }
    for (int64_t i = 0; i < length; ++i, row += step, from += size) {
      if (kind == 'f') {
        storeFloat(to, row, readFloat(size, from));
        continue;
      }
      int64_t value;
      fits &= readInteger(kind, size, from, value);
      storeInteger(to, row, value);
      fits &= loadInteger(to, row) == value;
    }
  });
  if (!fits)
    return fail("expected values that fit " + elementName(to) + ", got larger ones of '" +
                getTypeName() + "'");
  return Error::success();
}

Error attn::writeNpy(StringRef path, const HostTensor &tensor) {
  static const char *const names[] = {"<f8", "<f4", "<f2", "<f4", "|b1",
                                      "|i1", "<i2", "<i4", "<i8"};
  ElementKind kind = tensor.getKind();
  std::string tuple;
  for (int64_t size : tensor.getShape())
    tuple += std::to_string(size) + ",";
  std::string header = ("{'descr': '" + Twine(names[unsigned(kind)]) +
                        "', 'fortran_order': False, 'shape': (" + tuple + "), }")
                           .str();
  // The elements start on a multiple of 64 bytes.
  size_t before = magic.size() + 4;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';

  std::error_code code;
  raw_fd_ostream os(path, code);
  if (code)
    return createStringError("cannot write '" + path + "': " + code.message());
  os << magic << '\x01' << '\x00' << char(header.size() & 0xff) << char(header.size() >> 8)
     << header;
  tensor.forEachRow([&](char *row, int64_t length) {
    if (kind != ElementKind::BF16) {
      os.write(row, size_t(length) * elementSize(kind));
      return;
    }
    for (int64_t i = 0; i < length; ++i, row += 2) {
      float value = float(loadFloat(kind, row));
      os.write(reinterpret_cast<const char *>(&value), sizeof(value));
    }
  });
  os.close();
  if (os.has_error()) {
    std::string reason = os.error().message();
    os.clear_error();
    return createStringError("cannot write '" + path + "': " + reason);
  }
  return Error::success();
}
