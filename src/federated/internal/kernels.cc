// Compiled by itself, with -O3 and without fused multiplications (CMakeLists.txt).
#include "federated/internal/kernels.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "federated/internal/dispatch.h"

namespace varda::federated::kernels {

namespace {

Vectors detect() {
#if VARDA_FEDERATED_X86
  const char* const chosen = std::getenv("VARDA_VECTORS");
  const std::string_view limit = chosen == nullptr ? "" : chosen;
  if (limit == "base") return Vectors::kBase;
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && limit != "avx2") return Vectors::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Vectors::kAvx2;
#endif
  return Vectors::kBase;
}

/// Sums of reductions: lane i adds the values i, i + 16, …; the width of registers does not matter.
constexpr std::size_t kLanes = 16;

VARDA_KERNEL_BODY double total(const double (&lanes)[kLanes]) {
  double half[8], quarter[4];
  for (std::size_t i = 0; i < 8; ++i) half[i] = lanes[i] + lanes[i + 8];
  for (std::size_t i = 0; i < 4; ++i) quarter[i] = half[i] + half[i + 4];
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

template <typename T>
VARDA_KERNEL_BODY T load(const std::byte* at, std::size_t index) {
  T out;
  std::memcpy(&out, at + index * sizeof(T), sizeof(T));
  return out;
}
template <typename T>
VARDA_KERNEL_BODY void store(std::byte* at, std::size_t index, T value) {
  std::memcpy(at + index * sizeof(T), &value, sizeof(T));
}

/// All bits if the condition holds. With masks instead of conditions g++ vectorizes the loops.
VARDA_KERNEL_BODY std::uint32_t mask_if(bool condition) { return condition ? 0xffffffffu : 0u; }
VARDA_KERNEL_BODY std::uint32_t chosen(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  return (a & mask) | (b & ~mask);
}

/// The bits of exponent and fraction move to their places in a float, and a multiplication by 2^112
/// corrects the exponent, also of subnormal numbers.
VARDA_KERNEL_BODY float float_of_half(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffu;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const std::uint32_t special = 0x7f800000u | magnitude << 13;  // infinity, not a number
  const std::uint32_t bits =
      chosen(mask_if(magnitude >= 0x7c00u), special, std::bit_cast<std::uint32_t>(scaled));
  return std::bit_cast<float>(bits | (half & 0x8000u) << 16);
}

/// As tensor::half_of().
VARDA_KERNEL_BODY std::uint16_t half_of_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
      std::bit_cast<std::uint32_t>(0.5f);
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  std::uint32_t out = chosen(mask_if(magnitude < 0x38800000u), subnormal, normal);
  out = chosen(mask_if(magnitude >= 0x477ff000u), 0x7c00u, out);
  out = chosen(mask_if(magnitude > 0x7f800000u), 0x7e00u, out);
  return static_cast<std::uint16_t>(out | (bits >> 16 & 0x8000u));
}

VARDA_KERNEL_BODY void from_fp16_body(const std::byte* in, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = float_of_half(load<std::uint16_t>(in, i));
}
VARDA_KERNEL_BODY void from_bf16_body(const std::byte* in, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(load<std::uint16_t>(in, i)) << 16);
}
VARDA_KERNEL_BODY void from_fp64_body(const std::byte* in, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(load<double>(in, i));
}
VARDA_KERNEL_BODY void from_int8_body(const std::byte* in, float scale, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(static_cast<std::int8_t>(in[i])) * scale;
}

VARDA_KERNEL_BODY void to_fp16_body(const float* in, std::byte* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) store(out, i, half_of_float(in[i]));
}
VARDA_KERNEL_BODY void to_bf16_body(const float* in, std::byte* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(in[i]);
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const std::uint32_t nan = bits >> 16 | 0x40u;
    store(out, i, static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded));
  }
}
VARDA_KERNEL_BODY void to_fp64_body(const float* in, std::byte* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) store(out, i, static_cast<double>(in[i]));
}

/// The integer hash "lowbias32" (nullprogram.com/blog/2018/07/31/, public domain).
VARDA_KERNEL_BODY std::uint32_t mixed(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x;
}

VARDA_KERNEL_BODY void to_int8_body(const float* in, float inverse, std::uint32_t key,
                                    std::byte* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = mixed(key + static_cast<std::uint32_t>(i) * 0x9e3779b9u);
    const float uniform = static_cast<float>(static_cast<std::int32_t>(bits >> 8)) * 0x1p-24f;
    const float moved = in[i] * inverse + uniform;
    // Conversion truncates toward zero: one less for negative numbers with a fraction.
    std::int32_t value = static_cast<std::int32_t>(moved);
    value -= static_cast<float>(value) > moved ? 1 : 0;
    value = value < -127 ? -127 : value;
    value = value > 127 ? 127 : value;
    out[i] = static_cast<std::byte>(static_cast<std::int8_t>(value));
  }
}

VARDA_KERNEL_BODY float max_magnitude_body(const float* in, std::size_t n) {
  // Magnitudes of floats have the order of their bits as integers.
  std::uint32_t out = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(in[i]) & 0x7fffffffu;
    out = magnitude > out ? magnitude : out;
  }
  return std::bit_cast<float>(out);
}

VARDA_KERNEL_BODY double sum_of_squares_body(const float* in, std::size_t n) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = in[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i + lane < n; ++lane) {
    const double value = in[i + lane];
    lanes[lane] += value * value;
  }
  return total(lanes);
}

VARDA_KERNEL_BODY double squared_distance_body(const double* a, const float* b, std::size_t n) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = a[i + lane] - b[i + lane];
      lanes[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i + lane < n; ++lane) {
    const double value = a[i + lane] - b[i + lane];
    lanes[lane] += value * value;
  }
  return total(lanes);
}

VARDA_KERNEL_BODY void add_scaled_body(double* __restrict sum, const float* __restrict in,
                                       double factor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) sum[i] += factor * in[i];
}

VARDA_KERNEL_BODY void add_scaled_4_body(double* __restrict sum, const float* const in[4],
                                         const double factor[4], std::size_t n) {
  const float* __restrict a = in[0];
  const float* __restrict b = in[1];
  const float* __restrict c = in[2];
  const float* __restrict d = in[3];
  const double fa = factor[0], fb = factor[1], fc = factor[2], fd = factor[3];
  for (std::size_t i = 0; i < n; ++i)
    sum[i] = (((sum[i] + fa * a[i]) + fb * b[i]) + fc * c[i]) + fd * d[i];
}

VARDA_KERNEL_BODY void to_double_body(const float* __restrict in, double* __restrict out,
                                      std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) out[i] = in[i];
}

VARDA_KERNEL_BODY double add_step_body(float* __restrict model, const double* __restrict step,
                                       double factor, std::size_t n) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double before = model[i + lane];
      const auto after = static_cast<float>(before + factor * step[i + lane]);
      const double change = after - before;
      lanes[lane] += change * change;
      model[i + lane] = after;
    }
  }
  for (std::size_t lane = 0; i + lane < n; ++lane) {
    const double before = model[i + lane];
    const auto after = static_cast<float>(before + factor * step[i + lane]);
    const double change = after - before;
    lanes[lane] += change * change;
    model[i + lane] = after;
  }
  return total(lanes);
}

VARDA_KERNEL_BODY void momentum_step_body(float* __restrict momentum, double* __restrict step,
                                          double beta, double gain, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    momentum[i] = static_cast<float>(beta * momentum[i] + gain * step[i]);
    step[i] = momentum[i];
  }
}

VARDA_KERNEL_BODY void adaptive_step_body(float* __restrict first, float* __restrict second,
                                          double* __restrict step, const Adaptive& constants,
                                          std::size_t n) {
  const Adaptive c = constants;
  if (c.yogi) {
    for (std::size_t i = 0; i < n; ++i) {
      const double square = step[i] * step[i], before = second[i];
      const double sign = before > square ? 1.0 : before < square ? -1.0 : 0.0;
      second[i] = static_cast<float>(before - c.add * square * sign);
    }
  } else {
    for (std::size_t i = 0; i < n; ++i)
      second[i] = static_cast<float>(c.keep * second[i] + c.add * (step[i] * step[i]));
  }
  for (std::size_t i = 0; i < n; ++i) {
    first[i] = static_cast<float>(c.beta1 * first[i] + (1 - c.beta1) * step[i]);
    step[i] = first[i] / (std::sqrt(static_cast<double>(second[i])) + c.tau);
  }
}

// Vectors of the language instead of loops: g++ leaves these loops as they are, or with AVX-512
// makes wrong code of them.
template <int kBytes>
struct Vector {
  static constexpr std::size_t kFloats = kBytes / sizeof(float);
  static constexpr std::size_t kDoubles = kBytes / sizeof(double);
  typedef float Floats __attribute__((vector_size(kBytes)));
  typedef float HalfFloats __attribute__((vector_size(kBytes / 2)));
  typedef double Doubles __attribute__((vector_size(kBytes)));
  typedef std::int64_t Places __attribute__((vector_size(kBytes)));
};

template <int kBytes>
VARDA_KERNEL_BODY void sort_columns_body(float* rows, std::span<const Comparator> network) {
  using V = Vector<kBytes>;
  for (const Comparator pair : network) {
    float* const low = rows + pair.low * kColumns;
    float* const high = rows + pair.high * kColumns;
    for (std::size_t i = 0; i < kColumns; i += V::kFloats) {
      typename V::Floats a, b;
      std::memcpy(&a, low + i, sizeof a);
      std::memcpy(&b, high + i, sizeof b);
      const typename V::Floats less = b < a ? b : a, more = b < a ? a : b;
      std::memcpy(low + i, &less, sizeof less);
      std::memcpy(high + i, &more, sizeof more);
    }
  }
}

template <int kBytes>
VARDA_KERNEL_BODY void load_doubles(const float* at, typename Vector<kBytes>::Doubles& out) {
  typename Vector<kBytes>::HalfFloats floats;
  std::memcpy(&floats, at, sizeof floats);
  out = __builtin_convertvector(floats, typename Vector<kBytes>::Doubles);
}

/// As column_means(), for the columns of one vector.
template <int kBytes>
VARDA_KERNEL_BODY void vector_mean(const float* rows, std::size_t from, std::size_t to,
                                   typename Vector<kBytes>::Doubles& out) {
  typename Vector<kBytes>::Doubles sum = {}, value;
  for (std::size_t row = from; row < to; ++row) {
    load_doubles<kBytes>(rows + row * kColumns, value);
    sum += value;
  }
  out = sum / static_cast<double>(to - from);
}

template <int kBytes>
VARDA_KERNEL_BODY void column_means_body(const float* rows, std::size_t from, std::size_t to,
                                         double* out) {
  for (std::size_t i = 0; i < kColumns; i += Vector<kBytes>::kDoubles) {
    typename Vector<kBytes>::Doubles mean;
    vector_mean<kBytes>(rows + i, from, to, mean);
    std::memcpy(out + i, &mean, sizeof mean);
  }
}

template <int kBytes>
VARDA_KERNEL_BODY void vector_mean_near_median(const float* rows, std::size_t n, std::size_t count,
                                               typename Vector<kBytes>::Doubles& out) {
  using Doubles = typename Vector<kBytes>::Doubles;
  using Places = typename Vector<kBytes>::Places;
  Doubles median, low, high;
  vector_mean<kBytes>(rows, (n - 1) / 2, n / 2 + 1, median);
  // Sorted values closest to the median are neighbours. The window of `count` rows moves up while
  // the row above it is closer than the lowest row in it. It ends on a row of the median.
  const std::size_t from = near_median_from(n, count), to = near_median_to(n, count);
  Places start = Places{} + static_cast<std::int64_t>(from);
  for (std::size_t row = from; row + count < to; ++row) {
    load_doubles<kBytes>(rows + row * kColumns, low);
    load_doubles<kBytes>(rows + (row + count) * kColumns, high);
    const Places moves = median - low > high - median;  // -1: true, for rows from `from` on
    start -= moves;
  }
  Doubles sum = {}, value;
  const Doubles zero = {};
  for (std::size_t row = from; row < to; ++row) {
    load_doubles<kBytes>(rows + row * kColumns, value);
    const Places place = static_cast<std::int64_t>(row) - start;
    const Places inside = (place >= 0) & (place < static_cast<std::int64_t>(count));
    sum += inside ? value : zero;
  }
  out = sum / static_cast<double>(count);
}

template <int kBytes>
VARDA_KERNEL_BODY void column_means_near_median_body(const float* rows, std::size_t n,
                                                     std::size_t count, double* out) {
  for (std::size_t i = 0; i < kColumns; i += Vector<kBytes>::kDoubles) {
    typename Vector<kBytes>::Doubles mean;
    vector_mean_near_median<kBytes>(rows + i, n, count, mean);
    std::memcpy(out + i, &mean, sizeof mean);
  }
}

}  // namespace

namespace {
std::atomic<Vectors>& chosen_vectors() {
  static std::atomic<Vectors> chosen = detect();
  return chosen;
}
}  // namespace

Vectors vectors() { return chosen_vectors().load(std::memory_order_relaxed); }
void limit_vectors(Vectors widest) { chosen_vectors() = std::min(widest, detect()); }

VARDA_KERNEL(void, from_fp16, (const std::byte* in, float* out, std::size_t n), (in, out, n))
VARDA_KERNEL(void, from_bf16, (const std::byte* in, float* out, std::size_t n), (in, out, n))
VARDA_KERNEL(void, from_fp64, (const std::byte* in, float* out, std::size_t n), (in, out, n))
VARDA_KERNEL(void, from_int8, (const std::byte* in, float scale, float* out, std::size_t n),
             (in, scale, out, n))
VARDA_KERNEL(void, to_fp16, (const float* in, std::byte* out, std::size_t n), (in, out, n))
VARDA_KERNEL(void, to_bf16, (const float* in, std::byte* out, std::size_t n), (in, out, n))
VARDA_KERNEL(void, to_fp64, (const float* in, std::byte* out, std::size_t n), (in, out, n))
VARDA_KERNEL(void, to_int8,
             (const float* in, float inverse, std::uint32_t key, std::byte* out, std::size_t n),
             (in, inverse, key, out, n))
VARDA_KERNEL(float, max_magnitude, (const float* in, std::size_t n), (in, n))
VARDA_KERNEL(double, sum_of_squares, (const float* in, std::size_t n), (in, n))
VARDA_KERNEL(double, squared_distance, (const double* a, const float* b, std::size_t n), (a, b, n))
VARDA_KERNEL(void, add_scaled, (double* sum, const float* in, double factor, std::size_t n),
             (sum, in, factor, n))
VARDA_KERNEL(void, add_scaled_4,
             (double* sum, const float* const in[4], const double factor[4], std::size_t n),
             (sum, in, factor, n))
VARDA_KERNEL(void, to_double, (const float* in, double* out, std::size_t n), (in, out, n))
VARDA_KERNEL(double, add_step, (float* model, const double* step, double factor, std::size_t n),
             (model, step, factor, n))
VARDA_KERNEL(void, momentum_step,
             (float* momentum, double* step, double beta, double gain, std::size_t n),
             (momentum, step, beta, gain, n))
VARDA_KERNEL(void, adaptive_step,
             (float* first, float* second, double* step, const Adaptive& constants, std::size_t n),
             (first, second, step, constants, n))
VARDA_KERNEL_BY_WIDTH(void, sort_columns, (float* rows, std::span<const Comparator> network),
                      (rows, network), "")
VARDA_KERNEL_BY_WIDTH(void, column_means,
                      (const float* rows, std::size_t from, std::size_t to, double* out),
                      (rows, from, to, out), "")
VARDA_KERNEL_BY_WIDTH(void, column_means_near_median,
                      (const float* rows, std::size_t n, std::size_t count, double* out),
                      (rows, n, count, out), "")

}  // namespace varda::federated::kernels
