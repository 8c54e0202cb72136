// Compiled by itself, with fused multiplications (CMakeLists.txt). The product of two floats is
// exact in a double, so fusing changes no bit.
#include <cstring>

#include "federated/internal/dispatch.h"
#include "federated/internal/kernels.h"

namespace varda::federated::kernels {
namespace {

constexpr std::size_t kGramLanes = 8;  // sums of each element, for any width of vectors

/// ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7))
VARDA_KERNEL_BODY double lane_total(const double* lanes) {
  typedef double Four __attribute__((vector_size(32)));
  typedef double Two __attribute__((vector_size(16)));
  Four low, high;
  std::memcpy(&low, lanes, sizeof low);
  std::memcpy(&high, lanes + 4, sizeof high);
  low += high;
  Two first, second;
  std::memcpy(&first, &low, sizeof first);
  std::memcpy(&second, reinterpret_cast<const char*>(&low) + sizeof first, sizeof second);
  first += second;
  return first[0] + first[1];
}

/// kGramTile rows times kRight rows. The sums of one vector of lanes stay in registers.
template <int kBytes, std::size_t kRight>
VARDA_KERNEL_BODY void gram_tile(const double* a, const double* b, std::size_t width, double* sums,
                                 std::size_t n) {
  typedef double Lanes __attribute__((vector_size(kBytes)));
  constexpr std::size_t kVector = kBytes / sizeof(double);
  double lanes[kGramTile][kRight][kGramLanes];
  for (std::size_t group = 0; group < kGramLanes; group += kVector) {
    Lanes tile[kGramTile][kRight] = {};
    for (std::size_t k = group; k < width; k += kGramLanes) {
      Lanes right[kRight], left;
#pragma GCC unroll 4
      for (std::size_t j = 0; j < kRight; ++j)
        std::memcpy(&right[j], b + j * width + k, sizeof left);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kGramTile; ++i) {
        std::memcpy(&left, a + i * width + k, sizeof left);
#pragma GCC unroll 4
        for (std::size_t j = 0; j < kRight; ++j) tile[i][j] += left * right[j];
      }
    }
    for (std::size_t i = 0; i < kGramTile; ++i)
      for (std::size_t j = 0; j < kRight; ++j)
        std::memcpy(&lanes[i][j][group], &tile[i][j], sizeof(Lanes));
  }
  for (std::size_t i = 0; i < kGramTile; ++i) {
    for (std::size_t j = 0; j < kRight; ++j) sums[i * n + j] += lane_total(lanes[i][j]);
  }
}

template <int kBytes>
VARDA_KERNEL_BODY void gram_body(const double* panel, std::size_t n, std::size_t width,
                                 std::size_t from, std::size_t to, double* sums) {
  // AVX-512 has 32 registers, its predecessors have 16.
  constexpr std::size_t kRight = kBytes == 64 ? 4 : 2;
  // The rows [from, to) stay in the L1 cache, and the others come from the L2 cache once.
  for (std::size_t j = from; j < n; j += kRight)
    for (std::size_t i = from; i < to && i <= j; i += kGramTile)
      gram_tile<kBytes, kRight>(panel + i * width, panel + j * width, width, sums + i * n + j, n);
}

}  // namespace

VARDA_KERNEL_BY_WIDTH(void, gram,
                      (const double* panel, std::size_t n, std::size_t width, std::size_t from,
                       std::size_t to, double* sums),
                      (panel, n, width, from, to, sums), ",fma")

}  // namespace varda::federated::kernels
