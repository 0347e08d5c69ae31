// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What TMA and the tensor core do, when the scheduler says so.

#include "Cluster.h"
#include "llvm/ADT/bit.h"
#include <cmath>

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

//===----------------------------------------------------------------------===//
// TMA
//===----------------------------------------------------------------------===//

void interpreter::forEachElement(const MemRef &memref, ArrayRef<int64_t> coordinates, int64_t rows,
                                 int64_t columns,
                                 function_ref<void(int64_t, int64_t, char *)> visit) {
  size_t rank = coordinates.size();
  bool outside = false;
  int64_t base = memref.offset;
  for (size_t dim = 0; dim + 2 < rank; ++dim) {
    outside |= coordinates[dim] < 0 || coordinates[dim] >= memref.sizes[dim];
    base += coordinates[dim] * memref.strides[dim];
  }
  for (int64_t row = 0; row < rows; ++row) {
    int64_t atRow = rank > 1 ? coordinates[rank - 2] + row : 0;
    bool noRow = outside || (rank > 1 && (atRow < 0 || atRow >= memref.sizes[rank - 2]));
    int64_t start = base + (rank > 1 ? atRow * memref.strides[rank - 2] : 0);
    for (int64_t column = 0; column < columns; ++column) {
      int64_t at = coordinates.back() + column;
      bool none = noRow || at < 0 || at >= memref.sizes.back();
      visit(row, column, none ? nullptr : memref.at(start + at));
    }
  }
}

LogicalResult Cluster::finishLoad(TmaLoad &load) {
  SmemMemory &memory = memories[load.tile.memory];
  auto type = cast<hopper::TmaLoadOp>(load.op).getTile().getType();
  forEachElement(*load.source, load.coordinates, type.getRows(), memory.columns,
                 [&](int64_t row, int64_t column, const char *element) {
                   if (!load.dropped.empty() && load.dropped[size_t(row)])
                     element = nullptr;
                   memory.row(load.tile.slot, load.tile.row + row)[column] =
                       element ? loadNumber(load.source->kind, element) : 0;
                 });
  load.done = true;
  MBarrier &barrier = barriers[load.barrier];
  barrier.copied += load.bytes;
  ++machine.statistics.copies;
  changed();
  if (barrier.arrived == barrier.count && barrier.copied > barrier.expected) {
    InFlightDiagnostic diagnostic = error(load.op);
    diagnostic << "copies more bytes than phase " << barrier.phase << " of mbarrier "
               << barrier.index << " expects: " << barrier.copied << " of " << barrier.expected;
    if (barrier.lastExpect)
      diagnostic.attachNote(barrier.lastExpect->getLoc()) << "what is expected";
    return diagnostic;
  }
  return completePhase(barrier, load.op);
}

void Cluster::readStore(TmaStore &store) {
  if (store.read)
    return;
  SmemMemory &memory = memories[store.tile.memory];
  for (int64_t row = 0; row < store.type.getRows(); ++row) {
    const double *from = memory.row(store.tile.slot, store.tile.row + row);
    store.data.insert(store.data.end(), from, from + paddedColumns(store.type));
  }
  store.read = true;
  changed();
}

void Cluster::writeStore(TmaStore &store) {
  if (store.written)
    return;
  readStore(store);
  const MemRef &target = *store.target;
  int64_t columns = paddedColumns(store.type);
  forEachElement(target, store.coordinates, store.type.getRows(), columns,
                 [&](int64_t row, int64_t column, char *element) {
                   if (!element)
                     return;
                   double value = store.data[size_t(row * columns + column)];
                   if (store.reduce)
                     value += loadNumber(target.kind, element);
                   storeNumber(target.kind, element, value);
                 });
  store.data.clear();
  store.written = true;
  ++machine.statistics.copies;
  changed();
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Rows and columns of an operand: of a tile, or of a vector.
template <typename T>
static std::vector<T> readOperand(Cluster &cluster, const interpreter::Value &value, Type type,
                                  int64_t &stride) {
  if (auto vector = dyn_cast<VectorType>(type)) {
    stride = vector.getDimSize(1);
    return std::vector<T>(value.floats(), value.floats() + vector.getNumElements());
  }
  auto tile = cast<tile::SmemType>(type);
  const auto &view = value.as<SmemView>();
  stride = paddedColumns(tile);
  int64_t pitch = !view.own    ? cluster.memories[view.memory].columns
                  : view.pitch ? view.pitch
                               : stride;
  const double *from = view.own ? view.own->data.get() + view.row * pitch
                                : cluster.memories[view.memory].row(view.slot, view.row);
  std::vector<T> values;
  for (int64_t row = 0; row < tile.getRows(); ++row) {
    const double *first = from + row * pitch + view.column;
    values.insert(values.end(), first, first + stride);
  }
  return values;
}

template <typename T> static std::vector<T> transposed(const std::vector<T> &from, int64_t stride) {
  int64_t rows = int64_t(from.size()) / stride;
  std::vector<T> to(from.size());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < stride; ++column)
      to[size_t(column * rows + row)] = from[size_t(row * stride + column)];
  return to;
}

/// Products that the tensor core adds at a time.
constexpr int64_t kTerms = 16;

// Machines with FMAs run a version that has them; elsewhere each is a call.
#if defined(__x86_64__) && defined(__clang__)
#define ATTN_FOR_EACH_CPU __attribute__((target_clones("fma", "default")))
#else
#define ATTN_FOR_EACH_CPU
#endif

/// Rows and columns of a product, and how far rows of its operands lie apart.
struct ProductShape {
  int64_t m, n, k, aStride, bStride;
};

template <typename T>
[[gnu::always_inline]] static inline void addFmas(T *sums, const T *a, const T *b,
                                                  const ProductShape &shape) {
  for (int64_t row = 0; row < shape.m; ++row)
    for (int64_t at = 0; at < shape.k; ++at) {
      T *to = sums + row * shape.n;
      T x = a[row * shape.aStride + at];
      const T *y = b + at * shape.bStride;
      for (int64_t column = 0; column < shape.n; ++column)
        to[column] = std::fma(x, y[column], to[column]);
    }
}

ATTN_FOR_EACH_CPU
static void addFmasF32(float *sums, const float *a, const float *b, const ProductShape &shape) {
  addFmas(sums, a, b, shape);
}

ATTN_FOR_EACH_CPU
static void addFmasF64(double *sums, const double *a, const double *b, const ProductShape &shape) {
  addFmas(sums, a, b, shape);
}

/// The sum of a float and of products with other floats, which are exact, as
/// Hopper's tensor core forms it: the terms are cut off, toward zero, two bits
/// below the last one of a float with the largest term's exponent, added
/// exactly, and the sum is cut off to a float. (Khattak and Mikaitis, "Accurate
/// models of NVIDIA tensor cores", 2025)
static float addProducts(float sum, const float *a, const float *b, int64_t stride) {
  float products[kTerms], largest = std::abs(sum), plain = sum;
  for (int64_t t = 0; t < kTerms; ++t) {
    products[t] = a[t] * b[t * stride];
    largest = std::max(largest, std::abs(products[t]));
    plain += products[t];
  }
  if (largest == 0 || !std::isfinite(plain))
    return plain;
  constexpr int kBits = 25,
                kSmallest = -100; // floats are too small for a unit of less
  int exponent = std::max(int(llvm::bit_cast<uint32_t>(largest) >> 23) - 127, kSmallest);
  auto power = [](int e) { return llvm::bit_cast<float>(uint32_t(e + 127) << 23); };
  float scale = power(kBits - exponent);
  int32_t total = int32_t(sum * scale);
  for (float product : products)
    total += int32_t(product * scale);
  uint32_t magnitude = total < 0 ? 0u - uint32_t(total) : uint32_t(total);
  int excess = std::max(0, llvm::bit_width(magnitude) - 24);
  float result = float(magnitude >> excess << excess) * power(exponent - kBits);
  return total < 0 ? -result : result;
}

static void addOfTensorCore(float *sums, const float *a, const float *b,
                            const ProductShape &shape) {
  for (int64_t row = 0; row < shape.m; ++row)
    for (int64_t at = 0; at < shape.k; at += kTerms)
      for (int64_t column = 0; column < shape.n; ++column) {
        float &to = sums[row * shape.n + column];
        to = addProducts(to, a + row * shape.aStride + at, b + at * shape.bStride + column,
                         shape.bStride);
      }
}

/// To nearest, ties away from zero, 10 bits behind the point (`cvt.rna.tf32.f32`).
static float roundToTf32(float x) {
  if (!std::isfinite(x))
    return x;
  uint32_t bits = llvm::bit_cast<uint32_t>(x);
  return llvm::bit_cast<float>((bits + (1u << 12)) & ~((1u << 13) - 1));
}

/// One product of f32 by those of TF32, small ones first.
static float addTf32(float to, float x, float y, int64_t terms) {
  float x0 = roundToTf32(x), y0 = roundToTf32(y);
  if (terms == 3) {
    to = std::fma(roundToTf32(x - x0), y0, to);
    to = std::fma(x0, roundToTf32(y - y0), to);
  }
  return std::fma(x0, y0, to);
}

static void addOfTf32(float *sums, const float *a, const float *b, const ProductShape &shape,
                      int64_t terms) {
  for (int64_t row = 0; row < shape.m; ++row)
    for (int64_t at = 0; at < shape.k; ++at)
      for (int64_t column = 0; column < shape.n; ++column) {
        float &to = sums[row * shape.n + column];
        to = addTf32(to, a[row * shape.aStride + at], b[at * shape.bStride + column], terms);
      }
}

/// Products of f64 and f32 are FMAs, but for those of TF32.
template <typename T>
static void multiplyTiles(Cluster &cluster, const interpreter::Value &a, Type aType,
                          bool transposeA, const interpreter::Value &b, tile::SmemType bType,
                          bool transposeB, VectorType type, double *result, int64_t tf32) {
  int64_t m = type.getDimSize(0), n = type.getDimSize(1), aStride, bStride;
  int64_t k = transposeB ? bType.getColumns() : bType.getRows();
  bool usesFma = tile::getElementBytes(bType.getElementType()) >= 4;
  if (!usesFma)
    k = (k + kTerms - 1) / kTerms * kTerms; // padding is read too
  std::vector<T> left = readOperand<T>(cluster, a, aType, aStride);
  std::vector<T> right = readOperand<T>(cluster, b, bType, bStride);
  if (transposeA) {
    left = transposed(left, aStride);
    aStride = int64_t(left.size()) / aStride;
  }
  if (transposeB) {
    right = transposed(right, bStride);
    bStride = int64_t(right.size()) / bStride;
  }
  std::vector<T> sums(result, result + m * n);
  ProductShape shape{m, n, k, aStride, bStride};
  if constexpr (std::is_same_v<T, double>)
    addFmasF64(sums.data(), left.data(), right.data(), shape);
  else if (tf32)
    addOfTf32(sums.data(), left.data(), right.data(), shape, tf32);
  else if (usesFma)
    addFmasF32(sums.data(), left.data(), right.data(), shape);
  else
    addOfTensorCore(sums.data(), left.data(), right.data(), shape);
  std::copy(sums.begin(), sums.end(), result);
}

void interpreter::multiply(Cluster &cluster, const interpreter::Value &a, Type aType,
                           bool transposeA, const interpreter::Value &b, tile::SmemType bType,
                           bool transposeB, VectorType type, double *result, int64_t tf32) {
  auto run = bType.getElementType().isF64() ? multiplyTiles<double> : multiplyTiles<float>;
  run(cluster, a, aType, transposeA, b, bType, transposeB, type, result, tf32);
}

static void computeProduct(Cluster &cluster, Product &product) {
  hopper::WgmmaOp op = product.op;
  VectorType type = op.getResult().getType().getTile();
  product.result = std::make_shared<Floats>(type.getNumElements());
  double *result = product.result->data.get();
  const double *start = product.previous             ? product.previous->result->data.get()
                        : product.accumulator.object ? product.accumulator.floats()
                                                     : nullptr;
  if (start)
    std::copy_n(start, type.getNumElements(), result);
  else
    std::fill_n(result, type.getNumElements(), 0.0);
  multiply(cluster, product.a, op.getA().getType(), op.getTransposeA(), product.b,
           op.getB().getType(), op.getTransposeB(), type, result);
  // The operands are not needed any more.
  product.a = product.b = product.accumulator = {};
  product.previous.reset();
}

void Cluster::finishProduct(Fiber &fiber, Product &product) {
  for (const std::shared_ptr<Product> &next : fiber.products) {
    if (!next->result) {
      computeProduct(*this, *next);
      ++machine.statistics.products;
    }
    if (next.get() == &product)
      return;
  }
}

//===----------------------------------------------------------------------===//
// The scheduler's choice
//===----------------------------------------------------------------------===//

bool Cluster::progress(LogicalResult &status, bool loadsOnly) {
  llvm::erase_if(writes, [](const auto &store) { return store->written; });
  SmallVector<std::function<void()>, 8> work;
  for (size_t n = 0; n < loads.size(); ++n)
    work.push_back([this, n, &status] {
      std::shared_ptr<TmaLoad> load = loads[n];
      loads.erase(loads.begin() + int64_t(n));
      status = finishLoad(*load);
    });
  for (Fiber &fiber : fibers) {
    if (loadsOnly)
      break;
    for (const std::shared_ptr<TmaStore> &store : fiber.stores)
      if (!store->read)
        work.push_back([this, &store] { readStore(*store); });
    for (const std::shared_ptr<Product> &product : fiber.products)
      if (!product->result) {
        work.push_back([this, &fiber, &product] { finishProduct(fiber, *product); });
        break; // the next ones come after it
      }
  }
  for (const std::shared_ptr<TmaStore> &store : writes)
    if (store->read && !store->written && !loadsOnly)
      work.push_back([this, &store] { writeStore(*store); });
  if (work.empty())
    return false;
  work[machine.pick(work.size())]();
  return true;
}
