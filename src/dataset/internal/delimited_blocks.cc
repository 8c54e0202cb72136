// Judges 64 bytes at a time, on bit masks.
//
// Nearly every block is regular: quotes are where they may be, and all records have equally many
// fields. That is, outside of quotes every n-th delimiter or line end is a line end. Regular blocks
// are judged without branches that depend on the text. Irregular blocks are judged end by end, and
// blocks with misplaced quotes byte by byte.
#include <algorithm>
#include <array>

#include "dataset/internal/delimited.h"

#define VARDA_INLINE __attribute__((always_inline)) inline

namespace varda::dataset {
namespace {

constexpr std::size_t kBatchBlocks = 64;
constexpr std::uint64_t kAll = ~std::uint64_t{0};

std::uint64_t below(unsigned bit) { return (std::uint64_t{1} << bit) - 1; }

VARDA_INLINE std::uint64_t count(std::uint64_t bits) {
  return static_cast<std::uint64_t>(__builtin_popcountll(bits));
}

/// gather(): the bits of `bits` at the set positions of `where`, packed together.
struct PlainBits {
  static VARDA_INLINE std::uint64_t gather(std::uint64_t bits, std::uint64_t where) {
    std::uint64_t out = 0;
    for (std::uint64_t rest = bits & where; rest != 0; rest &= rest - 1)
      out |= std::uint64_t{1} << count(where & below(static_cast<unsigned>(__builtin_ctzll(rest))));
    return out;
  }
};

#if defined(__x86_64__)
struct FastBits {
  static VARDA_INLINE std::uint64_t gather(std::uint64_t bits, std::uint64_t where) {
    std::uint64_t out;
    // An intrinsic would not compile inside functions for all machines.
    __asm__("pextq %2, %1, %0" : "=r"(out) : "r"(bits), "r"(where));
    return out;
  }
};

bool has_bit_manipulation() {
  // AMD's first two processors with pext (Zen 1 and 2) need hundreds of cycles for one.
  return __builtin_cpu_supports("popcnt") != 0 && __builtin_cpu_supports("bmi") != 0 &&
         __builtin_cpu_supports("bmi2") != 0 && __builtin_cpu_is("znver1") == 0 &&
         __builtin_cpu_is("znver2") == 0;
}
#endif

}  // namespace

const std::vector<Instructions>& Instructions::all() {
  static const std::vector<Instructions> all = [] {
    std::vector<Instructions> out;
    for (const NamedFindMasks& masks : all_find_masks()) out.push_back({masks.find, false});
#if defined(__x86_64__)
    if (has_bit_manipulation())
      for (const NamedFindMasks& masks : all_find_masks()) out.push_back({masks.find, true});
#endif
    return out;
  }();
  return all;
}

/// Processes blocks while they are regular; returns the number processed.
template <typename Bits>
VARDA_INLINE std::size_t DelimitedScanner::regular(const Masks* masks, std::size_t blocks,
                                                   std::uint64_t at) {
  if (!has_header_ || defect_ != Defect::kNone || delimiters_ > expected_) return 0;
  const std::uint64_t fields = expected_ + 1;
  // Positions of line ends among delimiters and ends, if the first one is a line end.
  std::uint64_t cycle = 1;
  for (std::uint64_t bit = fields; bit < 64; bit += fields) cycle |= std::uint64_t{1} << bit;
  const std::uint64_t one_field =
      fields == 1 ? kAll : 0;  // with one field, an empty line looks like a record
  const std::uint64_t too_long =
      at + blocks * kBlockBytes - record_at_ > kRecordBytesMax ? kAll : 0;

  // Bit 0 describes the byte before the block; in `inside`, all bits do.
  std::uint64_t inside = state_ == State::kQuoted ? kAll : 0;
  std::uint64_t opens = state_ == State::kFieldStart ? 1 : 0;
  std::uint64_t closed = state_ == State::kQuoteSeen ? 1 : 0;
  std::uint64_t closed_cr = state_ == State::kQuoteSeenCr ? 1 : 0;
  std::uint64_t began = record_at_ == at ? 1 : 0;  // a record begins
  std::uint64_t began_cr = last_cr_ && record_at_ + 1 == at ? 1 : 0;
  std::uint64_t delimiters = delimiters_, samples = 0, lines = 0;
  std::array<std::uint64_t, kBatchBlocks> all_ends;  // NOLINT: filled as far as it is read

  std::size_t taken = 0;
  for (; taken < blocks; ++taken) {
    const Masks& m = masks[taken];
    const std::uint64_t in = m.quoted ^ inside;
    const std::uint64_t closing = m.quote & ~in, ends = m.line_feed & ~in,
                        marks = (m.delimiter & ~in) | ends;
    const std::uint64_t behind_quote = closing << 1 | closed,
                        cr_behind_quote = behind_quote & m.carriage_return;
    const std::uint64_t may_open = marks << 1 | behind_quote | opens;
    const std::uint64_t behind_cr = cr_behind_quote << 1 | closed_cr;
    const std::uint64_t marks_count = count(marks), ends_count = count(ends),
                        left = expected_ - delimiters;
    const std::uint64_t wanted = left < 64 ? cycle << left : 0;
    const std::uint64_t begins = ends << 1 | began, cr_begins = begins & m.carriage_return;
    const std::uint64_t odd =
        (m.quote & in & ~may_open) | (behind_quote & ~(m.quote | marks | m.carriage_return)) |
        (behind_cr & ~m.line_feed) | m.nul |
        ((Bits::gather(ends, marks) ^ wanted) & below(marks_count & 63)) | marks_count >> 6 |
        (ends & ((one_field & (begins | cr_begins << 1 | began_cr)) | too_long));
    if (odd != 0) [[unlikely]]
      break;
    all_ends[taken] = ends;
    samples += ends_count;
    lines += count(m.line_feed);
    delimiters += marks_count - ends_count * fields;
    inside = in >> 63 != 0 ? kAll : 0;
    opens = marks >> 63;
    closed = closing >> 63;
    closed_cr = cr_behind_quote >> 63;
    began = ends >> 63;
    began_cr = cr_begins >> 63;
  }
  if (taken == 0) return 0;

  tally_.samples += samples;
  lines_ += lines;
  delimiters_ = delimiters;
  last_cr_ = masks[taken - 1].carriage_return >> 63 != 0;
  state_ = inside != 0      ? State::kQuoted
           : closed != 0    ? State::kQuoteSeen
           : opens != 0     ? State::kFieldStart
           : closed_cr != 0 ? State::kQuoteSeenCr
                            : State::kPlain;
  std::uint64_t behind = 0;  // line breaks after the last end
  for (std::size_t i = taken; samples > 0;) {
    --i;
    if (all_ends[i] == 0) {
      behind += count(masks[i].line_feed);
      continue;
    }
    const auto last = static_cast<unsigned>(63 - __builtin_clzll(all_ends[i]));
    behind += count(masks[i].line_feed >> last) - 1;
    record_at_ = at + i * kBlockBytes + last + 1;
    record_line_ = lines_ - behind;
    break;
  }
  return taken;
}

/// False, without changes, if the block has misplaced quotes.
VARDA_INLINE bool DelimitedScanner::block(const Masks& masks, std::uint64_t at) {
  const std::uint64_t inside = masks.quoted ^ (state_ == State::kQuoted ? kAll : 0);
  const std::uint64_t opening = masks.quote & inside, closing = masks.quote & ~inside;
  const std::uint64_t delimiters = masks.delimiter & ~inside, ends = masks.line_feed & ~inside;
  const std::uint64_t behind_quote = closing << 1 | std::uint64_t{state_ == State::kQuoteSeen};
  const std::uint64_t may_open =
      (delimiters | ends) << 1 | behind_quote | std::uint64_t{state_ == State::kFieldStart};
  const std::uint64_t behind_cr =
      (behind_quote & masks.carriage_return) << 1 | std::uint64_t{state_ == State::kQuoteSeenCr};
  const std::uint64_t odd =
      (opening & ~may_open) |
      (behind_quote & ~(masks.quote | masks.delimiter | masks.line_feed | masks.carriage_return)) |
      (behind_cr & ~masks.line_feed) | masks.nul;
  if (odd != 0) [[unlikely]]
    return false;

  const std::uint64_t behind_any_cr = masks.carriage_return << 1 | std::uint64_t{last_cr_};
  std::uint64_t left = delimiters;
  for (std::uint64_t rest = ends; rest != 0; rest &= rest - 1) {
    const auto bit = static_cast<unsigned>(__builtin_ctzll(rest));
    const std::uint64_t before = below(bit);
    delimiters_ += count(left & before);
    left &= ~before;
    end_record(at + bit, (behind_any_cr >> bit & 1) != 0);
    record_line_ = lines_ + count(masks.line_feed & before) + 1;
  }
  delimiters_ += count(left);
  lines_ += count(masks.line_feed);

  last_cr_ = masks.carriage_return >> 63 != 0;
  if (inside >> 63 != 0) {
    state_ = State::kQuoted;
  } else if (closing >> 63 != 0) {
    state_ = State::kQuoteSeen;
  } else if ((delimiters | ends) >> 63 != 0) {
    state_ = State::kFieldStart;
  } else if ((behind_quote & masks.carriage_return) >> 63 != 0) {
    state_ = State::kQuoteSeenCr;
  } else {
    state_ = State::kPlain;
  }
  return true;
}

/// Processes whole blocks.
template <typename Bits>
VARDA_INLINE void DelimitedScanner::blocks_with(std::string_view bytes, std::uint64_t at) {
  std::array<Masks, kBatchBlocks> masks;  // NOLINT: filled as far as it is read
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size() / kBlockBytes, masks.size());
    instructions_.find_masks(bytes.data(), count, dialect_.delimiter, dialect_.quote, masks.data());
    for (std::size_t i = 0; i < count;) {
      i += regular<Bits>(&masks[i], count - i, at + i * kBlockBytes);
      if (i == count) break;
      if (!block(masks[i], at + i * kBlockBytes))
        for (std::size_t byte = i * kBlockBytes; byte < (i + 1) * kBlockBytes; ++byte)
          step(bytes[byte], at + byte);
      ++i;
    }
    bytes.remove_prefix(count * kBlockBytes);
    at += count * kBlockBytes;
  }
}

#if defined(__x86_64__)
__attribute__((target("popcnt,bmi,bmi2"))) void DelimitedScanner::blocks_with_bit_manipulation(
    std::string_view bytes, std::uint64_t at) {
  blocks_with<FastBits>(bytes, at);
}
#else
void DelimitedScanner::blocks_with_bit_manipulation(std::string_view bytes, std::uint64_t at) {
  blocks_with<PlainBits>(bytes, at);
}
#endif

void DelimitedScanner::blocks(std::string_view bytes, std::uint64_t at) {
  if (instructions_.bit_manipulation) {
    blocks_with_bit_manipulation(bytes, at);
  } else {
    blocks_with<PlainBits>(bytes, at);
  }
}

}  // namespace varda::dataset
