// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of schedules of Hopper's kernels.

#ifndef ATTN_LIB_PIPELINES_HOPPERTABLE_H
#define ATTN_LIB_PIPELINES_HOPPERTABLE_H

#include "HopperForms.h"
#include "attn/Dialect/Hopper/IR/Hopper.h"

namespace attn {

using Output = hopper::OutputMemory;
/// Columns of a slab, where outputs leave one at a time.
constexpr int64_t kSlabColumns = 64;

/// One row of the table: what a module whose widest tile has at most `columns`
/// columns gets. Registers are what limits the tiles: a warpgroup holds
/// 64 x keys scores in f32, the same in 16 bits, and 64 x columns of output.
struct Schedule {
  int64_t columns;
  enum Masks { Any, Masked, Unmasked, Banded } masks; // banded ones are masked, too
  /// For streams of at most as many elements, which may be known only when the
  /// kernel is launched; 0 is no limit.
  int64_t length;
  int64_t blockM, blockN;
  Output output;
  bool overlap, pingPong;
  bool trims = false;
  /// No register to spare for what a score or a mask loads or computes with
  /// many steps.
  bool isTight = false;
  /// A fold also adds sums to memory: registers are short, and all warpgroups meet in
  /// each iteration. What all tiles compute alike from rows of memory is computed once and
  /// copied; the first product of an iteration runs beside the end of the one before.
  bool addsSums = false;
  /// Nothing fills these sums, and tiles of keys start at different queries. (At d 64, with
  /// arithmetic that keeps the FMA units busy, both together are 3 % slower.)
  bool storesFirst = true;
  /// The fence for what is added is the adder's, not the consumers'. (At d 128, causal, 3 %
  /// slower.)
  bool adderFences = false;
  int64_t stages = 2;
  /// Of so many pairs of a tile's columns one has its exponentials emulated by polynomials, where
  /// the FMA units have little else to do; 0: none.
  int64_t exp2Emulation = 0;
  /// How much a running maximum grows before sums are rescaled, in powers of two; 0: they
  /// always are. It pays where outputs are wide, or where nothing else keeps the FMA units
  /// busy and registers are short.
  double rescaleThreshold = 0;
  /// Where the maximum of a row's first tile may stand in for the running one
  /// (hopper-fix-maxima): whether it does in this row, or must not.
  enum Maxima { Either, Fixed, Running } maxima = Either;
  /// CTAs that share a multiprocessor, and its registers: one computes while another waits.
  int64_t occupancy = 1;
  /// The last product of an iteration runs beside the next one. Without it, registers are too
  /// few for that, and for what a score computes with many steps.
  bool pipelines = true;
  /// Parts of the keys, as in #hopper.schedule.
  int64_t parts = 1;

  bool isFor(MaskForm mask) const {
    return masks != (mask.isMasked ? Unmasked : Masked) && (masks != Banded || mask.isBanded);
  }
};
/// A key whose weight is not 2^0 brings the error of its rounding into the output: where it has
/// most of a row's weight that should be small. Normal scores grow by more once in 10^7.
constexpr double kRescaleThreshold = 4;
constexpr Schedule withRescaleThreshold(Schedule row) {
  row.rescaleThreshold = kRescaleThreshold;
  return row;
}
constexpr Schedule withMaxima(Schedule row, Schedule::Maxima maxima) {
  row.maxima = maxima;
  return row;
}
constexpr Schedule withOccupancy(Schedule row, bool pipelines) {
  row.occupancy = 2;
  row.pipelines = pipelines;
  return row;
}
constexpr Schedule withParts(Schedule row, int64_t stages) {
  row.parts = 0;
  row.stages = stages;
  return row;
}
// Few rows, of which one warpgroup computes: as many bytes of keys and values in flight as fit.
inline constexpr Schedule kSplitSchedules[] = {
    withParts({64, Schedule::Any, 0, 64, 128, Output::Reuse, false, false}, /*stages=*/4),
    withParts({128, Schedule::Any, 0, 64, 128, Output::Reuse, false, false}, /*stages=*/2),
    withParts({192, Schedule::Any, 0, 64, 96, Output::Reuse, false, false}, /*stages=*/2),
    withParts({256, Schedule::Any, 0, 64, 64, Output::Reuse, false, false}, /*stages=*/2),
};
// The first row that fits is taken. Loops are trimmed (hopper-trim-loops) where
// that leaves out whole tiles: where a warpgroup's rows are no multiple of the
// tile's keys. Not with overlap: ptxas then serialises the products (C7514).
inline constexpr Schedule kSchedules[] = {
    // Where a band bounds the tiles of keys, all lengths are short ones.
    withOccupancy({64, Schedule::Banded, 0, 64, 128, Output::Own, false, false},
                  /*pipelines=*/true),
    // 192 rows have 1.7 times the scores of a causal mask at length 512, 128
    // have 1.25.
    withOccupancy({64, Schedule::Masked, 2048, 128, 64, Output::Own, false, false,
                   /*trims=*/false, /*isTight=*/true},
                  /*pipelines=*/false),
    {64, Schedule::Masked, 1024, 128, 128, Output::Own, false, false,
     /*trims=*/false, /*isTight=*/true},
    withRescaleThreshold({64, Schedule::Masked, 0, 192, 128, Output::Own, false, true,
                          /*trims=*/true, /*isTight=*/true}),
    {64, Schedule::Any, 0, 192, 128, Output::Own, true, true, /*trims=*/false,
     /*isTight=*/true},
    withOccupancy({64, Schedule::Masked, 0, 128, 64, Output::Own, false, false},
                  /*pipelines=*/false),
    withMaxima({128, Schedule::Unmasked, 4096, 128, 128, Output::Own, true, true,
                /*trims=*/false, /*isTight=*/true},
               Schedule::Running),
    withMaxima({128, Schedule::Unmasked, 0, 128, 176, Output::Reuse, false, true,
                /*trims=*/false, /*isTight=*/true},
               Schedule::Running),
    // Half of the code, and as fast.
    withMaxima({128, Schedule::Masked, 0, 128, 128, Output::Own, false, true,
                /*trims=*/false, /*isTight=*/true},
               Schedule::Fixed),
    {128, Schedule::Any, 0, 128, 128, Output::Own, true, true,
     /*trims=*/false, /*isTight=*/true},
    {128, Schedule::Any, 0, 128, 128, Output::Own, false, true},
    withRescaleThreshold({192, Schedule::Any, 0, 128, 96, Output::Reuse, false, true}),
    // Slabs leave Q's memory for the next tile early, which pays where tiles
    // are short.
    withRescaleThreshold({256, Schedule::Masked, 2048, 128, 64, Output::Slabs, false, true,
                          /*trims=*/true}),
    withRescaleThreshold({256, Schedule::Any, 1024, 128, 64, Output::Slabs, false, true}),
    withRescaleThreshold({256, Schedule::Any, 0, 128, 80, Output::Reuse, false, true,
                          /*trims=*/true}),
};

// Where a score reads tiles by row and column, which are copied beside the keys
// (hopper-load-tiles) and need room. Registers, too: what is read is held with
// the scores.
inline constexpr Schedule kCopiedSchedules[] = {
    {64, Schedule::Any, 0, 128, 128, Output::Own, false, true},
    {128, Schedule::Any, 0, 128, 128, Output::Reuse, false, true},
    withRescaleThreshold({256, Schedule::Any, 0, 128, 64, Output::Reuse, false, true}),
};

// For functions with folds of three or more products (gradients), whose sizes
// of tiles are those of HopperSchedules.cpp: outputs, and tiles of other folds.
inline constexpr Schedule kGradientSchedules[] = {
    {128, Schedule::Any, 0, 128, 128, Output::Own, false, true},
    {192, Schedule::Any, 0, 128, 96, Output::Reuse, false, true},
    {256, Schedule::Any, 0, 128, 64, Output::Reuse, false, true},
};

// The same where such a fold also adds to memory. (Its warpgroups meet in each iteration
// and do not alternate; those of others may.)
inline constexpr Schedule kAddedSchedules[] = {
    {64, Schedule::Any, 0, 128, 128, Output::Reuse, false, true, /*trims=*/false,
     /*isTight=*/false, /*addsSums=*/true, /*storesFirst=*/true, /*adderFences=*/true,
     /*stages=*/2, /*exp2Emulation=*/3},
    {64, Schedule::Any, 0, 128, 128, Output::Reuse, false, true, /*trims=*/false,
     /*isTight=*/false, /*addsSums=*/true, /*storesFirst=*/false, /*adderFences=*/true,
     /*stages=*/2, /*exp2Emulation=*/3},
    {128, Schedule::Unmasked, 0, 128, 128, Output::Reuse, false, true, /*trims=*/false,
     /*isTight=*/false, /*addsSums=*/true, /*storesFirst=*/true, /*adderFences=*/true},
    {128, Schedule::Any, 0, 128, 128, Output::Reuse, false, true, /*trims=*/false,
     /*isTight=*/false, /*addsSums=*/true},
};

} // namespace attn

#endif
