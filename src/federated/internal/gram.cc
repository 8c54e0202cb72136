// Compiled by itself, with fused multiplications (CMakeLists.txt). The product of two floats is
// exact in a double, so fusing changes no bit.
#include "federated/internal/dispatch.h"
#include "federated/internal/kernels.h"

namespace varda::federated::kernels {
namespace {

constexpr std::size_t kGramLanes = 8;

/// One 4 x 4 tile of the matrix. Each of 16 sums has 8 lanes, so that the sums stay in registers of
/// AVX-512.
VARDA_KERNEL_BODY void gram_tile(const double* a, const double* b, std::size_t width, double* sums,
                                 std::size_t n) {
  typedef double Lanes __attribute__((vector_size(kGramLanes * sizeof(double)), aligned(8)));
  Lanes tile[kGramTile][kGramTile] = {};
  for (std::size_t k = 0; k < width; k += kGramLanes) {
    Lanes right[kGramTile];
#pragma GCC unroll 4
    for (std::size_t j = 0; j < kGramTile; ++j)
      right[j] = *reinterpret_cast<const Lanes*>(b + j * width + k);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kGramTile; ++i) {
      const Lanes left = *reinterpret_cast<const Lanes*>(a + i * width + k);
#pragma GCC unroll 4
      for (std::size_t j = 0; j < kGramTile; ++j) tile[i][j] += left * right[j];
    }
  }
  for (std::size_t i = 0; i < kGramTile; ++i) {
    for (std::size_t j = 0; j < kGramTile; ++j) {
      const Lanes& lanes = tile[i][j];
      sums[i * n + j] += ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
                         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    }
  }
}

VARDA_KERNEL_BODY void gram_body(const double* panel, std::size_t n, std::size_t width,
                                 double* sums) {
  for (std::size_t i = 0; i < n; i += kGramTile)
    for (std::size_t j = i; j < n; j += kGramTile)
      gram_tile(panel + i * width, panel + j * width, width, sums + i * n + j, n);
}

}  // namespace

VARDA_KERNEL_VARIANTS(void, gram,
                      (const double* panel, std::size_t n, std::size_t width, double* sums),
                      (panel, n, width, sums), "avx2,fma",
                      "avx512f,avx512bw,avx512dq,avx512vl,fma" VARDA_KERNEL_WIDE)

}  // namespace varda::federated::kernels
