// Keys and values in pages, on the CPU and in the programs for GPUs: pages of 1, 16 and 64 rows, of a size
// that divides nothing, and larger than a tile; lengths from 0 on.
// RUN: attn-run %s --target=cpu --entry=one --shape 0=3x4x5x32 --shape 1=50x2x1x32 --shape 2=50x2x1x32 --shape 3=3x37 --fill 3=uniform:0:50 --fill 4=uniform:0:37 --check | FileCheck %s
// RUN: attn-run %s --target=cpu --entry=sixteen --shape 0=3x4x70x64 --shape 1=20x2x16x64 --shape 2=20x2x16x40 --shape 3=3x9 --fill 3=uniform:0:20 --fill 4=uniform:0:140 --check | FileCheck %s
// RUN: attn-run %s --target=cpu --entry=seven --shape 0=3x4x1x64 --shape 1=20x2x7x64 --shape 2=20x2x7x64 --shape 3=3x19 --fill 3=uniform:0:20 --fill 4=uniform:0:133 --check | FileCheck %s
// RUN: attn-run %s --target=cpu --entry=large --shape 0=2x2x70x64 --shape 1=5x2x256x64 --shape 2=5x2x256x64 --shape 3=2x2 --fill 3=uniform:0:5 --fill 4=uniform:200:500 --check | FileCheck %s
// RUN: attn-run %s --target=cpu --entry=sixteen --loop-order=n_outer --shape 0=3x4x70x64 --shape 1=20x2x16x64 --shape 2=20x2x16x40 --shape 3=3x9 --fill 3=uniform:0:20 --fill 4=uniform:0:140 --check | FileCheck %s
// RUN: attn-run %s --target=cpu --entry=sixteen --loop-order=split_kv --parts=3 --shape 0=3x4x7x64 --shape 1=20x2x16x64 --shape 2=20x2x16x40 --shape 3=3x19 --fill 3=uniform:0:20 --fill 4=uniform:0:300 --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=one --shape 0=3x4x5x32 --shape 1=50x2x1x32 --shape 2=50x2x1x32 --shape 3=3x37 --fill 3=uniform:0:50 --fill 4=uniform:0:37 --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=sixteen --shape 0=3x4x70x64 --shape 1=20x2x16x64 --shape 2=20x2x16x40 --shape 3=3x9 --fill 3=uniform:0:20 --fill 4=uniform:0:140 --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=seven --shape 0=3x4x1x64 --shape 1=20x2x7x64 --shape 2=20x2x7x64 --shape 3=3x19 --fill 3=uniform:0:20 --fill 4=uniform:0:133 --check | FileCheck %s
// RUN: attn-run %s --target=interpreter --entry=large --shape 0=2x2x70x64 --shape 1=5x2x256x64 --shape 2=5x2x256x64 --shape 3=2x2 --fill 3=uniform:0:5 --fill 4=uniform:200:500 --check | FileCheck %s
// CHECK: check: result 0: ok
// CHECK-NEXT: check: result 1: ok

func.func @one(%q: tensor<?x4x?x32xf32>, %pk: tensor<?x2x1x32xf32>, %pv: tensor<?x2x1x32xf32>, %table: tensor<?x?xi32>, %used: tensor<?xi32>) -> (tensor<?x4x?x32xf32>, tensor<?x4x?xf32>) {
  %k = attn.pages %pk[%table] lengths(%used) : tensor<?x2x1x32xf32>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x2x?x32xf32>
  %v = attn.pages %pv[%table] lengths(%used) : tensor<?x2x1x32xf32>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x2x?x32xf32>
  %o, %l = attn.forward %q, %k, %v captures(%used : tensor<?xi32>) mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %n: tensor<?xi32>):
    %x = tensor.extract %n[%b] : tensor<?xi32>
    %count = arith.index_cast %x : i32 to index
    %keep = arith.cmpi slt, %j, %count : index
    attn.yield %keep : i1
  } : tensor<?x4x?x32xf32>, tensor<?x2x?x32xf32>, tensor<?x2x?x32xf32> -> tensor<?x4x?x32xf32>, tensor<?x4x?xf32>
  return %o, %l : tensor<?x4x?x32xf32>, tensor<?x4x?xf32>
}

// Causal from the bottom right, with columns of values that are fewer.
func.func @sixteen(%q: tensor<?x4x?x64xbf16>, %pk: tensor<?x2x16x64xbf16>, %pv: tensor<?x2x16x40xbf16>, %table: tensor<?x?xi32>, %used: tensor<?xi32>) -> (tensor<?x4x?x40xbf16>, tensor<?x4x?xf32>) {
  %k = attn.pages %pk[%table] lengths(%used) : tensor<?x2x16x64xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x2x?x64xbf16>
  %v = attn.pages %pv[%table] lengths(%used) : tensor<?x2x16x40xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x2x?x40xbf16>
  %c2 = arith.constant 2 : index
  %queries = tensor.dim %q, %c2 : tensor<?x4x?x64xbf16>
  %o, %l = attn.forward %q, %k, %v captures(%used, %queries : tensor<?xi32>, index) mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %n: tensor<?xi32>, %m: index):
    %x = tensor.extract %n[%b] : tensor<?xi32>
    %count = arith.index_cast %x : i32 to index
    %there = arith.cmpi slt, %j, %count : index
    %ahead = arith.subi %count, %m : index
    %place = arith.addi %i, %ahead : index
    %causal = arith.cmpi sge, %place, %j : index
    %keep = arith.andi %there, %causal : i1
    attn.yield %keep : i1
  } : tensor<?x4x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x40xbf16> -> tensor<?x4x?x40xbf16>, tensor<?x4x?xf32>
  return %o, %l : tensor<?x4x?x40xbf16>, tensor<?x4x?xf32>
}

func.func @seven(%q: tensor<?x4x1x64xf16>, %pk: tensor<?x2x7x64xf16>, %pv: tensor<?x2x7x64xf16>, %table: tensor<?x?xi32>, %used: tensor<?xi32>) -> (tensor<?x4x1x64xf16>, tensor<?x4x1xf32>) {
  %k = attn.pages %pk[%table] lengths(%used) : tensor<?x2x7x64xf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x2x?x64xf16>
  %v = attn.pages %pv[%table] lengths(%used) : tensor<?x2x7x64xf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x2x?x64xf16>
  %o, %l = attn.forward %q, %k, %v captures(%used : tensor<?xi32>) mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %n: tensor<?xi32>):
    %x = tensor.extract %n[%b] : tensor<?xi32>
    %count = arith.index_cast %x : i32 to index
    %keep = arith.cmpi slt, %j, %count : index
    attn.yield %keep : i1
  } : tensor<?x4x1x64xf16>, tensor<?x2x?x64xf16>, tensor<?x2x?x64xf16> -> tensor<?x4x1x64xf16>, tensor<?x4x1xf32>
  return %o, %l : tensor<?x4x1x64xf16>, tensor<?x4x1xf32>
}

// A window behind the end of each sequence.
func.func @large(%q: tensor<?x2x?x64xbf16>, %pk: tensor<?x2x256x64xbf16>, %pv: tensor<?x2x256x64xbf16>, %table: tensor<?x?xi32>, %used: tensor<?xi32>) -> (tensor<?x2x?x64xbf16>, tensor<?x2x?xf32>) {
  %k = attn.pages %pk[%table] lengths(%used) : tensor<?x2x256x64xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x2x?x64xbf16>
  %v = attn.pages %pv[%table] lengths(%used) : tensor<?x2x256x64xbf16>, tensor<?x?xi32>, tensor<?xi32> -> tensor<?x2x?x64xbf16>
  %o, %l = attn.forward %q, %k, %v captures(%used : tensor<?xi32>) mask {
  ^bb0(%b: index, %h: index, %i: index, %j: index, %n: tensor<?xi32>):
    %c100 = arith.constant 100 : index
    %x = tensor.extract %n[%b] : tensor<?xi32>
    %count = arith.index_cast %x : i32 to index
    %there = arith.cmpi slt, %j, %count : index
    %first = arith.subi %count, %c100 : index
    %near = arith.cmpi sge, %j, %first : index
    %keep = arith.andi %there, %near : i1
    attn.yield %keep : i1
  } : tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16>, tensor<?x2x?x64xbf16> -> tensor<?x2x?x64xbf16>, tensor<?x2x?xf32>
  return %o, %l : tensor<?x2x?x64xbf16>, tensor<?x2x?xf32>
}
