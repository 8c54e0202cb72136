#include "federated/internal/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "federated/internal/dispatch.h"
#include "federated/testing/updates.h"
#include "tensor/half.h"

namespace varda::federated {
namespace kernels_test {

using kernels::Vectors;

/// Restores the widest instructions.
struct Widest {
  ~Widest() { kernels::limit_vectors(Vectors::kAvx512); }
};

template <typename T>
void append(std::string& out, const std::vector<T>& values) {
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

/// The results of all kernels for `n` values, as bytes.
std::string results(std::size_t n) {
  std::string out;
  std::vector<float> a = testing::random_values(n, n), b = testing::random_values(n, n + 1, 1e-6);
  std::vector<double> sum(n, 0.25), wide(n);
  for (std::size_t i = 0; i < n; ++i) wide[i] = a[i] * 1e-3;
  std::vector<std::byte> bytes(n * 8);
  std::vector<float> floats(n);
  using To = void (*)(const float*, std::byte*, std::size_t);
  using From = void (*)(const std::byte*, float*, std::size_t);
  const std::pair<To, From> conversions[] = {{kernels::to_fp16, kernels::from_fp16},
                                             {kernels::to_bf16, kernels::from_bf16},
                                             {kernels::to_fp64, kernels::from_fp64}};
  for (const auto& [to, from] : conversions) {
    to(b.data(), bytes.data(), n);
    append(out, bytes);
    from(bytes.data(), floats.data(), n);
    append(out, floats);
  }
  kernels::to_int8(a.data(), 127, 0x1234567, bytes.data(), n);
  kernels::from_int8(bytes.data(), 1.0f / 127, floats.data(), n);
  append(out, bytes);
  append(out, floats);
  append(out, std::vector<float>{kernels::max_magnitude(a.data(), n)});
  append(out, std::vector<double>{kernels::sum_of_squares(a.data(), n),
                                  kernels::squared_distance(wide.data(), a.data(), n)});
  kernels::add_scaled(sum.data(), a.data(), 0.1, n);
  const float* const four[4] = {a.data(), b.data(), a.data(), b.data()};
  const double factors[4] = {0.3, 0.7, -0.1, 1e3};
  kernels::add_scaled_4(sum.data(), four, factors, n);
  append(out, sum);
  kernels::to_double(a.data(), wide.data(), n);
  append(out, wide);
  kernels::momentum_step(b.data(), wide.data(), 0.9, 0.3, n);
  append(out, wide);
  std::vector<float> first = b, second(n, 0.01f);
  for (const bool yogi : {false, true}) {
    kernels::adaptive_step(first.data(), second.data(), wide.data(),
                           {.beta1 = 0.9, .keep = 0.99, .add = 0.01, .yogi = yogi, .tau = 1e-3}, n);
    append(out, wide);
    append(out, second);
  }
  append(out, std::vector<double>{kernels::add_step(a.data(), sum.data(), 0.7, n)});
  append(out, a);
  return out;
}

std::string results_of_columns(std::size_t n) {
  std::string out;
  std::vector<float> rows = testing::random_values(n * kernels::kColumns, n + 5);
  // Equal values, so that windows around the median tie.
  for (std::size_t i = 0; i < rows.size(); i += 3) rows[i] = std::round(rows[i] * 4) / 4;
  std::vector<kernels::Comparator> network;  // odd-even transposition: not the one in use
  for (std::size_t round = 0; round < n; ++round)
    for (std::size_t i = round % 2; i + 1 < n; i += 2)
      network.push_back({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + 1)});
  kernels::sort_columns(rows.data(), network);
  append(out, rows);
  std::vector<double> means(kernels::kColumns);
  for (std::size_t count = 1; count <= n; count += 2) {
    kernels::column_means(rows.data(), n - count, n, means.data());
    append(out, means);
    kernels::column_means_near_median(rows.data(), n, count, means.data());
    append(out, means);
  }
  const std::size_t tiles = (n + 3) / 4 * 4;
  std::vector<double> panel(tiles * 16), sums(tiles * tiles);
  for (std::size_t i = 0; i < panel.size(); ++i) panel[i] = rows[i % rows.size()];
  kernels::gram(panel.data(), tiles, 16, 0, tiles, sums.data());
  append(out, sums);
  return out;
}

TEST(Kernels, AllVariantsGiveTheSameBits) {
  const Widest restored;
  for (const std::size_t n : {0, 1, 7, 15, 16, 17, 64, 255, 1000}) {
    kernels::limit_vectors(Vectors::kBase);
    const std::string expected = results(n);
    for (const Vectors widest : {Vectors::kAvx2, Vectors::kAvx512}) {
      kernels::limit_vectors(widest);
      ASSERT_EQ(results(n), expected) << n << " values, variant " << static_cast<int>(widest);
    }
  }
  for (const std::size_t n : {1, 2, 3, 7, 8, 9, 20, 52}) {
    kernels::limit_vectors(Vectors::kBase);
    const std::string expected = results_of_columns(n);
    for (const Vectors widest : {Vectors::kAvx2, Vectors::kAvx512}) {
      kernels::limit_vectors(widest);
      ASSERT_TRUE(results_of_columns(n) == expected)
          << n << " rows, variant " << static_cast<int>(widest);
    }
  }
}

TEST(Kernels, GramByPartsOfTheRowsIsTheSame) {
  const Widest restored;
  constexpr std::size_t kRows = 20, kWidth = 24;
  const std::vector<float> values = testing::random_values(kRows * kWidth, 9);
  const std::vector<double> panel(values.begin(), values.end());
  for (const Vectors widest : {Vectors::kBase, Vectors::kAvx2, Vectors::kAvx512}) {
    kernels::limit_vectors(widest);
    std::vector<double> whole(kRows * kRows), parts(kRows * kRows);
    kernels::gram(panel.data(), kRows, kWidth, 0, kRows, whole.data());
    for (std::size_t from = 0; from < kRows; from += 8)
      kernels::gram(panel.data(), kRows, kWidth, from, std::min(from + 8, kRows), parts.data());
    EXPECT_EQ(whole, parts);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = i; j < kRows; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < kWidth; ++k)
          sum += panel[i * kWidth + k] * panel[j * kWidth + k];
        EXPECT_NEAR(whole[i * kRows + j], sum, 1e-9);
      }
    }
  }
}

TEST(Kernels, MeansNearTheMedianFollowTheirDefinition) {
  const Widest restored;
  for (const Vectors widest : {Vectors::kBase, Vectors::kAvx2, Vectors::kAvx512}) {
    kernels::limit_vectors(widest);
    for (const std::size_t n : {1, 4, 7, 30}) {
      std::vector<float> rows = testing::random_values(n * kernels::kColumns, n);
      // Some columns have equal values, so that values at both sides of the median tie.
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (i % kernels::kColumns % 2 == 1) rows[i] = std::round(rows[i] * 3);
      for (std::size_t column = 0; column < kernels::kColumns; ++column) {
        std::vector<float> values;
        for (std::size_t i = 0; i < n; ++i) values.push_back(rows[i * kernels::kColumns + column]);
        std::sort(values.begin(), values.end());
        for (std::size_t i = 0; i < n; ++i) rows[i * kernels::kColumns + column] = values[i];
      }
      for (std::size_t count = 1; count <= n; ++count) {
        double out[kernels::kColumns];
        std::vector<float> unsorted = rows;  // rows that a shorter network does not sort
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const std::size_t row = i / kernels::kColumns;
          if (row < kernels::near_median_from(n, count) || row >= kernels::near_median_to(n, count))
            unsorted[i] = std::nanf("");
        }
        kernels::column_means_near_median(unsorted.data(), n, count, out);
        for (std::size_t column = 0; column < kernels::kColumns; ++column) {
          std::vector<double> values;
          for (std::size_t i = 0; i < n; ++i)
            values.push_back(rows[i * kernels::kColumns + column]);
          const double median = (values[(n - 1) / 2] + values[n / 2]) / 2;
          std::stable_sort(values.begin(), values.end(), [&](double a, double b) {
            return std::abs(a - median) < std::abs(b - median);
          });
          double sum = 0;
          for (std::size_t i = 0; i < count; ++i) sum += values[i];
          ASSERT_NEAR(out[column], sum / static_cast<double>(count), 1e-12);
        }
      }
    }
  }
}

// All 65,536 halves, and floats around each of them.
TEST(Kernels, HalvesConvertAsInTheRoomTensor) {
  const Widest restored;
  for (const Vectors widest : {Vectors::kBase, Vectors::kAvx2, Vectors::kAvx512}) {
    kernels::limit_vectors(widest);
    std::vector<std::uint16_t> halves(65'536);
    std::iota(halves.begin(), halves.end(), std::uint16_t{0});
    std::vector<float> floats(halves.size());
    kernels::from_fp16(reinterpret_cast<const std::byte*>(halves.data()), floats.data(),
                       floats.size());
    for (std::size_t i = 0; i < halves.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]),
                std::bit_cast<std::uint32_t>(tensor::float_of(halves[i])));
    for (const std::uint32_t offset : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0xffffffffu}) {
      std::vector<float> moved = floats;
      for (float& value : moved)
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + offset);
      std::vector<std::uint16_t> out(moved.size()), brain(moved.size());
      kernels::to_fp16(moved.data(), reinterpret_cast<std::byte*>(out.data()), moved.size());
      kernels::to_bf16(moved.data(), reinterpret_cast<std::byte*>(brain.data()), moved.size());
      for (std::size_t i = 0; i < moved.size(); ++i) {
        ASSERT_EQ(out[i], tensor::half_of(moved[i])) << moved[i];
        ASSERT_EQ(brain[i], tensor::bf16_of(moved[i])) << moved[i];
      }
    }
  }
}

TEST(Kernels, ValuesThatAreNotFiniteShow) {
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (std::size_t n = 1; n < 40; n += 6) {
      std::vector<float> values(n, 3e38f);
      EXPECT_TRUE(std::isfinite(kernels::sum_of_squares(values.data(), n)));
      values[n / 2] = bad;
      EXPECT_FALSE(std::isfinite(kernels::sum_of_squares(values.data(), n)));
      EXPECT_FALSE(std::isfinite(kernels::max_magnitude(values.data(), n)));
    }
  }
}

}  // namespace kernels_test
}  // namespace varda::federated
