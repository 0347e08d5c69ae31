// Kernels that wait by themselves for those before them are launched while these end (attribute 6,
// programmatic stream serialization); one that may not start before all of its blocks have room
// (attribute 2) is not. Those with a block for each of many tiles start when the others have ended.
// DEFINE: %{run} = env ATTNC_CUDA_DRIVER=%fake_cuda ATTNC_CACHE_DIR=
// DEFINE: %{batch} = 1
// DEFINE: %{arguments} = attn-run %s --target=cuda --grad --shape 0=%{batch}x1x300x64 --shape 1=%{batch}x1x300x64 --shape 2=%{batch}x1x300x64
// RUN: rm -rf %t && mkdir -p %t
// RUN: %{run} FAKE_CUDA_LOG=%t/few %{arguments} --deterministic=false
// RUN: FileCheck %s --check-prefix=FEW --input-file=%t/few
// REDEFINE: %{batch} = 86
// RUN: %{run} FAKE_CUDA_LOG=%t/many %{arguments} --deterministic=false
// RUN: FileCheck %s --check-prefix=MANY --input-file=%t/many
// REDEFINE: %{batch} = 1
// RUN: %{run} FAKE_CUDA_LOG=%t/ordered %{arguments} --schedule="order=n_outer deterministic=true"
// RUN: FileCheck %s --check-prefix=ORDERED --input-file=%t/ordered

// FEW: launch attention_kernel{{.*}} attribute 6: 1
// FEW: launch attention_gradient_kernel grid 6 {{.*}} attribute 6: 1
// FEW: launch attention_gradient_kernel_0 {{.*}} attribute 6: 1
// FEW: launch attention_gradient_kernel_3 grid 6 {{.*}} attribute 6: 1

// MANY: launch attention_kernel{{.*}} attribute 6: 1
// MANY: launch attention_gradient_kernel grid 516
// MANY-NOT: attribute
// MANY: launch attention_gradient_kernel_0 {{.*}} attribute 6: 1
// MANY: launch attention_gradient_kernel_3 grid 516
// MANY-NOT: attribute

// ORDERED: launch {{.*}} attribute 2: 1 0 0{{$}}
// ORDERED: launch attention_gradient_kernel_3 {{.*}} attribute 6: 1
func.func @attention(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>)
    -> (tensor<?x?x?x64xbf16>, tensor<?x?x?xf32>) {
  %o, %lse = attn.forward %q, %k, %v
    : tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16> -> tensor<?x?x?x64xbf16>, tensor<?x?x?xf32>
  return %o, %lse : tensor<?x?x?x64xbf16>, tensor<?x?x?xf32>
}
