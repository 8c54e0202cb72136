#include "dataset/internal/masks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace varda::dataset {

void find_masks_plain(const char* bytes, std::size_t blocks, char delimiter, char quote, Masks* out) {
  for (std::size_t block = 0; block < blocks; ++block, bytes += kBlockBytes) {
    Masks masks{};
    for (std::size_t i = 0; i < kBlockBytes; ++i) {
      const char c = bytes[i];
      masks.quote |= std::uint64_t{c == quote && quote != '\0'} << i;
      masks.delimiter |= std::uint64_t{c == delimiter} << i;
      masks.line_feed |= std::uint64_t{c == '\n'} << i;
      masks.carriage_return |= std::uint64_t{c == '\r'} << i;
      masks.nul |= std::uint64_t{c == '\0'} << i;
    }
    out[block] = masks;
  }
}

#if defined(__x86_64__)
namespace {

// SSE2 is part of x86-64.
void find_masks_sse2(const char* bytes, std::size_t blocks, char delimiter, char quote, Masks* out) {
  const __m128i wanted[5] = {_mm_set1_epi8(quote), _mm_set1_epi8(delimiter), _mm_set1_epi8('\n'), _mm_set1_epi8('\r'),
                             _mm_setzero_si128()};
  const std::uint64_t quotes = quote == '\0' ? 0 : ~std::uint64_t{0};
  for (std::size_t block = 0; block < blocks; ++block, bytes += kBlockBytes) {
    std::uint64_t found[5] = {};
    for (int part = 0; part < 4; ++part) {
      const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * part));
      for (int what = 0; what < 5; ++what) {
        const auto bits = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(some, wanted[what])));
        found[what] |= std::uint64_t{bits} << (16 * part);
      }
    }
    out[block] = {found[0] & quotes, found[1], found[2], found[3], found[4]};
  }
}

__attribute__((target("avx2"))) void find_masks_avx2(const char* bytes, std::size_t blocks, char delimiter, char quote,
                                                     Masks* out) {
  const __m256i wanted[5] = {_mm256_set1_epi8(quote), _mm256_set1_epi8(delimiter), _mm256_set1_epi8('\n'), _mm256_set1_epi8('\r'),
                             _mm256_setzero_si256()};
  const std::uint64_t quotes = quote == '\0' ? 0 : ~std::uint64_t{0};
  for (std::size_t block = 0; block < blocks; ++block, bytes += kBlockBytes) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32));
    std::uint64_t found[5];
    for (int what = 0; what < 5; ++what) {
      const auto first = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(low, wanted[what])));
      const auto second = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(high, wanted[what])));
      found[what] = first | std::uint64_t{second} << 32;
    }
    out[block] = {found[0] & quotes, found[1], found[2], found[3], found[4]};
  }
}

}  // namespace

void find_masks(const char* bytes, std::size_t blocks, char delimiter, char quote, Masks* out) {
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  (avx2 ? find_masks_avx2 : find_masks_sse2)(bytes, blocks, delimiter, quote, out);
}
#else
void find_masks(const char* bytes, std::size_t blocks, char delimiter, char quote, Masks* out) {
  find_masks_plain(bytes, blocks, delimiter, quote, out);
}
#endif

}  // namespace varda::dataset
