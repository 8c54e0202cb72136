#include "dataset/internal/masks.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace varda::dataset {

void find_masks_plain(const char* bytes, std::size_t blocks, char delimiter, char quote,
                      Masks* out) {
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
    masks.quoted = prefix_xor(masks.quote);
    out[block] = masks;
  }
}

#if defined(__x86_64__)
namespace {

// SSE2 is part of x86-64.
void find_masks_sse2(const char* bytes, std::size_t blocks, char delimiter, char quote,
                     Masks* out) {
  const __m128i wanted[5] = {_mm_set1_epi8(quote), _mm_set1_epi8(delimiter), _mm_set1_epi8('\n'),
                             _mm_set1_epi8('\r'), _mm_setzero_si128()};
  const std::uint64_t quotes = quote == '\0' ? 0 : ~std::uint64_t{0};
  for (std::size_t block = 0; block < blocks; ++block, bytes += kBlockBytes) {
    std::uint64_t found[5] = {};
    for (int part = 0; part < 4; ++part) {
      const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 16 * part));
      for (int what = 0; what < 5; ++what) {
        const auto bits =
            static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(some, wanted[what])));
        found[what] |= std::uint64_t{bits} << (16 * part);
      }
    }
    out[block] = {found[0] & quotes, found[1], found[2],
                  found[3],          found[4], prefix_xor(found[0] & quotes)};
  }
}

// The carry-less product with all ones (over GF(2)) is the XOR of all bits up to each position.
__attribute__((target("pclmul"))) inline std::uint64_t prefix_xor_by_product(std::uint64_t bits) {
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(bits)), _mm_set1_epi8(-1), 0);
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(product));
}

__attribute__((target("avx2,pclmul"))) void find_masks_avx2(const char* bytes, std::size_t blocks,
                                                            char delimiter, char quote,
                                                            Masks* out) {
  const __m256i wanted[5] = {_mm256_set1_epi8(quote), _mm256_set1_epi8(delimiter),
                             _mm256_set1_epi8('\n'), _mm256_set1_epi8('\r'),
                             _mm256_setzero_si256()};
  const std::uint64_t quotes = quote == '\0' ? 0 : ~std::uint64_t{0};
  for (std::size_t block = 0; block < blocks; ++block, bytes += kBlockBytes) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32));
    std::uint64_t found[5];
    for (int what = 0; what < 5; ++what) {
      const auto first =
          static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(low, wanted[what])));
      const auto second =
          static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(high, wanted[what])));
      found[what] = first | std::uint64_t{second} << 32;
    }
    out[block] = {found[0] & quotes, found[1], found[2],
                  found[3],          found[4], prefix_xor_by_product(found[0] & quotes)};
  }
}

__attribute__((target("avx512f,avx512bw,pclmul"))) void find_masks_avx512(const char* bytes,
                                                                          std::size_t blocks,
                                                                          char delimiter,
                                                                          char quote, Masks* out) {
  const __m512i quotes = _mm512_set1_epi8(quote), delimiters = _mm512_set1_epi8(delimiter);
  const __m512i line_feeds = _mm512_set1_epi8('\n'), carriage_returns = _mm512_set1_epi8('\r');
  const std::uint64_t quotes_wanted = quote == '\0' ? 0 : ~std::uint64_t{0};
  for (std::size_t block = 0; block < blocks; ++block, bytes += kBlockBytes) {
    const __m512i some = _mm512_loadu_si512(bytes);
    const std::uint64_t found = _mm512_cmpeq_epi8_mask(some, quotes) & quotes_wanted;
    out[block] = {found,
                  _mm512_cmpeq_epi8_mask(some, delimiters),
                  _mm512_cmpeq_epi8_mask(some, line_feeds),
                  _mm512_cmpeq_epi8_mask(some, carriage_returns),
                  _mm512_testn_epi8_mask(some, some),
                  prefix_xor_by_product(found)};
  }
}

}  // namespace

const std::vector<NamedFindMasks>& all_find_masks() {
  static const std::vector<NamedFindMasks> all = [] {
    std::vector<NamedFindMasks> out = {{"plain", find_masks_plain}, {"sse2", find_masks_sse2}};
    const bool product = __builtin_cpu_supports("pclmul") != 0;
    if (product && __builtin_cpu_supports("avx2") != 0) out.push_back({"avx2", find_masks_avx2});
    if (product && __builtin_cpu_supports("avx512bw") != 0)
      out.push_back({"avx512", find_masks_avx512});
    return out;
  }();
  return all;
}
#else
const std::vector<NamedFindMasks>& all_find_masks() {
  static const std::vector<NamedFindMasks> all = {{"plain", find_masks_plain}};
  return all;
}
#endif

}  // namespace varda::dataset
