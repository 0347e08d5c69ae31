// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// WGMMA: one asm statement for a product, from the fence to the commit, so that
// nothing comes between its instructions. Upstream's op has no operand in
// registers.

#include "Lowering.h"
#include "attn/Transforms/Tiles/Passes.h"

using namespace mlir;
using namespace attn::hopper;
namespace tile = attn::tile;

namespace {
/// An operand in shared memory as its descriptors (PTX ISA, "Matrix descriptor"):
/// the low word is the address in units of 16 bytes, with the leading offset
/// above; the high word is constant.
struct SmemOperand {
  bool alongK; // K is along the columns of the tile ("K-major")
  int64_t low; // to be added to the address
  int64_t high;
  SmallVector<int64_t> steps; // of the address, in units, for each k of an instruction

  SmemOperand(tile::SmemType tile, bool alongK, int64_t k, int64_t kSteps) : alongK(alongK) {
    int64_t swizzle = tile.getSwizzle();
    int64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : 3;
    // From 8 rows to the next; rows are swizzle bytes.
    int64_t stride = 8 * swizzle;
    // From one slab of columns to the next, where columns are not k.
    int64_t leading = alongK ? 16 : tile.getSlabBytes();
    low = (leading >> 4) << 16;
    high = (stride >> 4) | mode << 30;
    int64_t bytes = k * tile::getElementBytes(tile.getElementType()), perSlab = swizzle / bytes;
    for (int64_t s = 0; s < kSteps; ++s)
      steps.push_back(
          (alongK ? s / perSlab * tile.getSlabBytes() + s % perSlab * bytes : s * k * swizzle) >>
          4);
  }
};

/// The text of a product and what it names its operands.
class ProductText {
public:
  ProductText(const attn::target::MmaAtom &atom, int64_t n, int64_t registers)
      : text(buffer), atom(atom), n(n), registers(registers) {
    text << "{\n.reg .pred p, q;\n.reg .b32 x, ha, hb;\n.reg .b64 a, b;\n";
    text << "mov.pred p, 0;\nmov.pred q, 1;\n";
  }
  /// keptN = operand number first + N. ptxas (13.0) gives left operands of the same shape the
  /// same registers and forgets that one is needed again in the next iteration, unless it is
  /// computed in each one: from the number of blocks along y, which is 1 and not known to be.
  void keep(unsigned first, int64_t count) {
    text << ".reg .b32 zero, kept<" << count
         << ">;\nmov.u32 zero, %nctaid.y;\nsub.u32 zero, zero, 1;\n";
    for (int64_t i = 0; i < count; ++i)
      text << "xor.b32 kept" << i << ", $" << first + i << ", zero;\n";
  }
  void fence() { text << "wgmma.fence.sync.aligned;\n"; }
  void setHigh(StringRef name, int64_t value) {
    text << "mov.b32 " << name << ", 0x" << llvm::utohexstr(uint32_t(value)) << ";\n";
  }
  /// name = descriptor of operand number `operand`, `step` units on.
  void descriptor(StringRef name, unsigned operand, int64_t step, StringRef high) {
    text << "add.u32 x, $" << operand << ", " << step << ";\nmov.b64 " << name << ", {x, " << high
         << "};\n";
  }
  void instruction(const Twine &a, bool accumulates, const Twine &flags) {
    StringRef type = getName(atom.operands);
    text << "wgmma.mma_async.sync.aligned.m" << atom.m << "n" << n << "k" << atom.k << "."
         << getName(atom.accumulator) << "." << type << "." << type << " {";
    for (int64_t r = 0; r < registers; ++r)
      text << (r ? "," : "") << '$' << r;
    text << "}, " << a << ", b, " << (accumulates ? 'q' : 'p') << ", 1, 1, " << flags << ";\n";
  }
  std::string finish() {
    text << "wgmma.commit_group.sync.aligned;\n}";
    return buffer;
  }

private:
  std::string buffer;
  llvm::raw_string_ostream text;
  const attn::target::MmaAtom &atom;
  int64_t n, registers;
};
} // namespace

static std::string repeat(StringRef text, int64_t count) {
  std::string all;
  for (int64_t i = 0; i < count; ++i)
    all += (all.empty() ? "" : ",") + text.str();
  return all;
}

static std::string ties(int64_t count) {
  std::string all;
  for (int64_t i = 0; i < count; ++i)
    all += "," + std::to_string(i);
  return all;
}

static Parts unpackStruct(Value result, int64_t count, ImplicitLocOpBuilder &b) {
  Parts parts;
  for (int64_t i = 0; i < count; ++i)
    parts.values.push_back(LLVM::ExtractValueOp::create(b, result, i));
  return parts;
}

void KernelLowering::lowerWgmma(WgmmaOp op) {
  VectorType type = op.getResult().getType().getTile();
  tile::SmemType bTile = op.getB().getType();
  const attn::target::MmaAtom &atom = *findAtom(bTile.getElementType());
  int64_t n = type.getDimSize(1), registers = atom.m * n / kThreadsPerWarpgroup;
  int64_t k = op.getTransposeB() ? bTile.getColumns() : bTile.getRows();
  int64_t kSteps = llvm::divideCeil(k, atom.k);
  SmallVector<Value> operands;
  Value accumulator = op.getAccumulator();
  if (accumulator)
    operands =
        parts(accumulator, isa<PendingType>(accumulator.getType()) ? Layout::Scalar : Layout::Tile)
            .values;
  int64_t firstOperand = registers + operands.size();
  // Without an accumulator the outputs are written before all inputs are read.
  std::string constraints = repeat(accumulator ? "=f" : "=&f", registers);
  if (accumulator)
    constraints += ties(registers);
  auto low = [&](Value tile, const SmemOperand &operand) {
    Value address = scalar(tile);
    // In a cluster, the bits above are the CTA's number; above the descriptor's they are not.
    if (clusterSize)
      address = arith::AndIOp::create(b, address, constantI32(0x3ffff));
    Value units = arith::ShRUIOp::create(b, address, constantI32(4));
    operands.push_back(addI32(units, operand.low));
    constraints += ",r";
  };
  auto aTile = dyn_cast<tile::SmemType>(op.getA().getType());
  // The function's own block has been taken out of it and has no parent.
  auto loop = op->getParentOfType<scf::ForOp>();
  Operation *parentOfA = op.getA().getParentBlock()->getParentOp();
  bool keepsA = !aTile && loop && !(parentOfA && loop->isAncestor(parentOfA));
  // Registers of A for one instruction: pairs of elements.
  int64_t pairs = atom.m * atom.k / kThreadsPerWarpgroup / 2;
  ProductText text(atom, n, registers);
  if (keepsA)
    text.keep(firstOperand + 1, pairs * kSteps);
  text.fence();
  SmemOperand bOperand(bTile, op.getTransposeB(), atom.k, kSteps);
  text.setHigh("hb", bOperand.high);
  if (aTile) {
    SmemOperand aOperand(aTile, !op.getTransposeA(), atom.k, kSteps);
    text.setHigh("ha", aOperand.high);
    low(op.getA(), aOperand);
    low(op.getB(), bOperand);
    for (int64_t s = 0; s < kSteps; ++s) {
      text.descriptor("a", firstOperand, aOperand.steps[s], "ha");
      text.descriptor("b", firstOperand + 1, bOperand.steps[s], "hb");
      text.instruction("a", accumulator || s,
                       Twine(op.getTransposeA() ? "1, " : "0, ") +
                           (op.getTransposeB() ? "0" : "1"));
    }
  } else {
    low(op.getB(), bOperand);
    for (Value pair : parts(op.getA(), Layout::Tile).values)
      operands.push_back(LLVM::BitcastOp::create(b, b.getI32Type(), pair));
    constraints += "," + repeat("r", pairs * kSteps);
    for (int64_t s = 0; s < kSteps; ++s) {
      text.descriptor("b", firstOperand, bOperand.steps[s], "hb");
      std::string fragment = "{";
      for (int64_t i = 0; i < pairs; ++i)
        fragment +=
            (i ? "," : "") + (keepsA ? "kept" + std::to_string(pairs * s + i)
                                     : "$" + std::to_string(firstOperand + 1 + pairs * s + i));
      text.instruction(fragment + "}", accumulator || s, op.getTransposeB() ? "0" : "1");
    }
  }
  auto result = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                                 SmallVector<Type>(registers, b.getF32Type()));
  Value all = inlineAsm(result, operands, text.finish(), constraints + ",~{memory}",
                        /*sideEffects=*/true);
  setParts(op.getResult(), Layout::Scalar, unpackStruct(all, registers, b));
}

/// Where only a rescaling of a running maximum uses the product, the branch around it comes first,
/// with a wait on each side. ptxas moves a wait up across exponentials, which are meant to run
/// beside the product, but not into the block before a branch.
void KernelLowering::lowerWait(WaitOp op) {
  SmallVector<Value> product = parts(op.getProduct(), Layout::Scalar).values;
  auto rescaling = op->hasOneUse() ? dyn_cast<arith::MulFOp>(*op->user_begin()) : arith::MulFOp();
  bool isRescaled = rescaling && rescaling->hasAttr(attn::kRescalingAttr) &&
                    rescaling->getBlock() == op->getBlock() &&
                    rescaling.getLhs() == op.getResult() &&
                    map.contains({rescaling.getRhs(), unsigned(Layout::Tile)});
  if (!isRescaled) {
    setParts(op.getResult(), Layout::Tile, waitFor(op, product));
    return;
  }
  setParts(rescaling.getResult(), Layout::Tile,
           rescale(elements(rescaling.getRhs(), Layout::Tile),
                   [&] { return waitFor(op, product).values; }));
  loweredEarly.insert(rescaling);
}

/// The registers pass through the wait, so that no use moves before it.
Parts KernelLowering::waitFor(WaitOp op, ValueRange product) {
  int64_t registers = product.size();
  auto result = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                                 SmallVector<Type>(registers, b.getF32Type()));
  Value all =
      inlineAsm(result, product, "wgmma.wait_group.sync.aligned " + Twine(op.getPending()) + ";",
                repeat("=f", registers) + ties(registers) + ",~{memory}",
                /*sideEffects=*/true);
  return unpackStruct(all, registers, b);
}
