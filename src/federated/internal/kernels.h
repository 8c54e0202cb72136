// The inner loops: conversions, sums, sorting.
//
// Each function has variants for AVX2 and AVX-512 that the processor selects. All variants give the
// same bits: they add in the same order, and no multiplication is fused with an addition unless the
// product is exact. Pointers need no alignment. Ranges do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace varda::federated::kernels {

// From the types of a file to floats.
void from_fp16(const std::byte* in, float* out, std::size_t n);
void from_bf16(const std::byte* in, float* out, std::size_t n);
void from_fp64(const std::byte* in, float* out, std::size_t n);
void from_int8(const std::byte* in, float scale, float* out, std::size_t n);

// From floats to the types of a file, rounded to nearest even.
void to_fp16(const float* in, std::byte* out, std::size_t n);
void to_bf16(const float* in, std::byte* out, std::size_t n);
void to_fp64(const float* in, std::byte* out, std::size_t n);
/// floor(in * inverse + u) with u in [0, 1) from `key` and the index; saturates at ±127.
void to_int8(const float* in, float inverse, std::uint32_t key, std::byte* out, std::size_t n);

/// The greatest magnitude; NaN and infinity count as numbers above all others.
float max_magnitude(const float* in, std::size_t n);
/// NaN or infinity if a value is not finite: the square of a float fits a double.
double sum_of_squares(const float* in, std::size_t n);
/// Sum of (a - b)².
double squared_distance(const double* a, const float* b, std::size_t n);

/// sum += factor * in
void add_scaled(double* sum, const float* in, double factor, std::size_t n);
/// The same for four inputs, one after the other.
void add_scaled_4(double* sum, const float* const in[4], const double factor[4], std::size_t n);
void to_double(const float* in, double* out, std::size_t n);

/// model += factor * step, rounded to float. Returns the sum of squares of the change, which is not
/// finite if a value of the model is not.
double add_step(float* model, const double* step, double factor, std::size_t n);

/// momentum = beta * momentum + gain * step, then step = momentum.
void momentum_step(float* momentum, double* step, double beta, double gain, std::size_t n);

/// Constants of adaptive_step().
struct Adaptive {
  double beta1 = 0;          // first moment = beta1 * first + (1 - beta1) * step
  double keep = 0, add = 0;  // second moment = keep * second + add * step²
  bool yogi = false;         // second moment = second - add * step² * sign(second - step²)
  double tau = 0;            // step = first / (sqrt(second) + tau)
};
void adaptive_step(float* first, float* second, double* step, const Adaptive& constants,
                   std::size_t n);

/// Two rows that sort_columns() compares, the row for the smaller values first.
struct Comparator {
  std::uint32_t low, high;
};
/// Columns that sort_columns() and the functions below treat at once.
inline constexpr std::size_t kColumns = 16;
/// Sorts each of the kColumns columns of `rows` (row-major, without gaps).
void sort_columns(float* rows, std::span<const Comparator> network);
/// Means of rows [from, to) by column, added in the order of the rows.
void column_means(const float* rows, std::size_t from, std::size_t to, double* out);
/// Rows that contain the `count` values closest to the median of n sorted rows: [from, to).
constexpr std::size_t near_median_from(std::size_t n, std::size_t count) {
  return (n - 1) / 2 < count ? 0 : (n - 1) / 2 + 1 - count;
}
constexpr std::size_t near_median_to(std::size_t n, std::size_t count) {
  return n / 2 + count < n ? n / 2 + count : n;
}
/// Means of the `count` values that are closest to the median, by column of `n` sorted rows; of
/// equally close values the smaller. Reads the rows near the median alone. 1 <= count <= n.
void column_means_near_median(const float* rows, std::size_t n, std::size_t count, double* out);

/// Rows of a panel for gram(): a multiple of 4, zeros in the rest.
inline constexpr std::size_t kGramTile = 4;
/// sums[i * n + j] += dot(row i, row j) for i in [from, to) and j >= i / 4 * 4. `panel` has n rows
/// of `width` doubles that were floats; n, `from` and `to` are multiples of kGramTile, width is one
/// of 8.
void gram(const double* panel, std::size_t n, std::size_t width, std::size_t from, std::size_t to,
          double* sums);
/// Asks for the floats at `at`, which may lie outside of any object. More streams than the
/// processor follows by itself need this.
inline void prefetch(const float* at, std::size_t count) {
  constexpr std::size_t kLineFloats = 16;
  for (std::size_t i = 0; i < count; i += kLineFloats) __builtin_prefetch(at + i);
}

}  // namespace varda::federated::kernels
