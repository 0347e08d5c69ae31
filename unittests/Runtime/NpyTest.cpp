// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Runtime/Npy.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "gtest/gtest.h"

using namespace llvm;
using namespace attn;

/// A file of this header and these elements.
static std::string makeFile(StringRef header, StringRef elements, char version = 1) {
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  uint32_t length = header.size();
  for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte)
    file += char(length >> (8 * byte));
  file += header;
  file += elements;
  return file;
}

static Expected<NpyFile> parse(StringRef bytes) {
  return NpyFile::parse(MemoryBuffer::getMemBufferCopy(bytes), "x.npy");
}

static std::string messageOf(StringRef bytes) {
  auto file = parse(bytes);
  return file ? "no error" : toString(file.takeError());
}

static const char goodHeader[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";

static std::string twoByThree() {
  float values[] = {0, 1, 2, 3, 4, 5};
  return makeFile(goodHeader, StringRef(reinterpret_cast<char *>(values), sizeof(values)));
}

TEST(Npy, Reads) {
  for (char version : {1, 2, 3}) {
    float values[] = {0, 1, 2, 3, 4, 5};
    auto file = parse(
        makeFile(goodHeader, StringRef(reinterpret_cast<char *>(values), sizeof(values)), version));
    ASSERT_TRUE(bool(file));
    EXPECT_EQ(file->getShape(), ArrayRef<int64_t>({2, 3}));
    EXPECT_EQ(file->getTypeName(), "f4");
    for (ElementKind kind :
         {ElementKind::F64, ElementKind::F32, ElementKind::F16, ElementKind::BF16}) {
      TensorPlacement placement;
      placement.pad = 2;
      auto tensor = HostTensor::create(kind, {2, 3}, placement);
      ASSERT_TRUE(bool(tensor));
      ASSERT_FALSE(bool(file->copyTo(*tensor)));
      double expected = 0;
      tensor->forEachRow([&](char *row, int64_t length) {
        for (int64_t i = 0; i < length; ++i)
          EXPECT_EQ(loadFloat(kind, row + i * elementSize(kind)), expected++);
      });
    }
  }
}

// A file cut off anywhere is an error, never more.
TEST(Npy, Truncated) {
  std::string whole = twoByThree();
  EXPECT_EQ(messageOf(whole), "no error");
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(messageOf(StringRef(whole).take_front(length)), "no error") << length;
  EXPECT_EQ(messageOf(StringRef(whole).drop_back(4)),
            "x.npy: expected 24 bytes of elements, got 20 (truncated)");
}

// Any byte of the header may be anything.
TEST(Npy, Mutated) {
  std::string whole = twoByThree();
  for (size_t position = 0; position < whole.size() - 24; ++position)
    for (int value = 0; value < 256; ++value) {
      std::string mutant = whole;
      mutant[position] = char(value);
      auto file = parse(mutant);
      if (file)
        EXPECT_LE(file->getShape().size(), 8u);
      else
        consumeError(file.takeError());
    }
}

TEST(Npy, Refuses) {
  auto header = [](StringRef text) { return messageOf(makeFile(text, "")); };
  EXPECT_EQ(messageOf("PK\x03\x04"), "x.npy: not a .npy file");
  EXPECT_EQ(messageOf(makeFile("", "", 4)), "x.npy: expected .npy version 1, 2 or 3, got 4");
  EXPECT_EQ(header("{'descr': '<f4'}"), "x.npy: malformed .npy header");
  EXPECT_EQ(header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"),
            "x.npy: expected C order, got Fortran order");
  EXPECT_EQ(header("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }"),
            "x.npy: expected little-endian numbers, got '>f4'");
  EXPECT_EQ(header("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }"),
            "x.npy: expected float, integer or bool elements, got '<c8'");
  EXPECT_EQ(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"),
            "x.npy: expected an array of plain numbers, got a structured type");
  EXPECT_EQ(header("{'descr': '<f4', 'fortran_order': False, 'shape': "
                   "(99999999999, 99999999999)}"),
            "x.npy: a tensor of 99999999999x99999999999 elements does not fit "
            "in memory");
}

TEST(Npy, Conversions) {
  int64_t values[] = {1, -2};
  auto file = parse(makeFile("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
                             StringRef(reinterpret_cast<char *>(values), sizeof(values))));
  ASSERT_TRUE(bool(file));
  auto narrow = HostTensor::create(ElementKind::I32, {2});
  ASSERT_FALSE(bool(file->copyTo(*narrow)));
  EXPECT_EQ(loadInteger(ElementKind::I32, narrow->getBase() + 4), -2);
  auto bits = HostTensor::create(ElementKind::I1, {2});
  EXPECT_EQ(toString(file->copyTo(*bits)),
            "x.npy: expected values that fit i1, got larger ones of 'i8'");
  auto floats = HostTensor::create(ElementKind::F32, {2});
  EXPECT_EQ(toString(file->copyTo(*floats)), "x.npy: expected elements for f32, got 'i8'");
  auto longer = HostTensor::create(ElementKind::I64, {3});
  EXPECT_EQ(toString(file->copyTo(*longer)), "x.npy: expected shape 3, got 2");
}

TEST(Npy, Writes) {
  SmallString<128> path;
  ASSERT_FALSE(sys::fs::createTemporaryFile("attn", "npy", path));
  for (ElementKind kind : {ElementKind::F64, ElementKind::F32, ElementKind::F16, ElementKind::BF16,
                           ElementKind::I8, ElementKind::I64}) {
    TensorPlacement placement;
    placement.pad = 1;
    auto tensor = HostTensor::create(kind, {2, 3}, placement);
    double next = -2;
    tensor->forEachRow([&](char *row, int64_t length) {
      for (int64_t i = 0; i < length; ++i)
        storeFloat(kind, row + i * elementSize(kind), next++);
    });
    ASSERT_FALSE(bool(writeNpy(path, *tensor)));
    auto file = NpyFile::open(path);
    ASSERT_TRUE(bool(file));
    auto copy = HostTensor::create(kind, {2, 3});
    ASSERT_FALSE(bool(file->copyTo(*copy)));
    EXPECT_EQ(loadFloat(kind, copy->getBase() + 5 * elementSize(kind)), 3);
  }
  sys::fs::remove(path);
  EXPECT_EQ(toString(NpyFile::open("/nonexistent.npy").takeError()),
            "cannot open '/nonexistent.npy': No such file or directory");
}
