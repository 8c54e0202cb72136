// idx: arrays of numbers, as MNIST has them. http://yann.lecun.com/exdb/mnist/
//
// Two zero bytes, the type, the number of dimensions, each dimension as a big-endian uint32, then
// the items. A sample is one item of the first dimension.
#include <algorithm>

#include "codec/digest.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {
namespace {

constexpr std::size_t kFixedBytes = 4, kDimensionBytes = 4, kDimensionsMax = 32;
constexpr std::uint64_t kItemBytesMax = std::uint64_t{1} << 40;

/// Bytes of one number of the type; 0: no such type.
std::uint64_t number_bytes(unsigned char type) {
  switch (type) {
    case 0x08:  // unsigned byte
    case 0x09:  // signed byte
      return 1;
    case 0x0B:
      return 2;
    case 0x0C:  // int
    case 0x0D:  // float
      return 4;
    case 0x0E:
      return 8;
    default:
      return 0;
  }
}

class IdxScanner final : public StreamScanner {
 public:
  IdxScanner() = default;
  IdxScanner(const IdxScanner&) = default;

 private:
  void scan(std::string_view bytes) override {
    bytes_ += bytes.size();
    // The fourth byte determines the length of the header.
    while (!bytes.empty() && header_.size() < header_bytes()) {
      const std::size_t taken = std::min(bytes.size(), header_bytes() - header_.size());
      header_.append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
    }
  }

  Tally finish() override {
    Tally tally;
    if (bytes_ == 0) return tally;
    const std::string wrong = problem();
    if (!wrong.empty()) {
      add_malformed(tally, {"", 0, 0, wrong});
      return tally;
    }
    const std::uint64_t items = dimension(0), size = item_bytes(), body = bytes_ - header_.size();
    tally.samples = std::min(items, body / size);
    if (tally.samples < items) {
      tally.inexact = "the file ends after " + std::to_string(tally.samples) + " of " +
                      std::to_string(items) + " items";
    } else if (body > items * size) {
      add_malformed(tally, {"", 0, header_.size() + items * size,
                            "bytes after the " + std::to_string(items) + " items of the header"});
    }
    return tally;
  }

  std::unique_ptr<StreamScanner> clone() const override {
    return std::make_unique<IdxScanner>(*this);
  }
  Json save_own() const override {
    return Json::object(
        {{"bytes", static_cast<std::int64_t>(bytes_)}, {"header", codec::base64(header_)}});
  }
  Status restore_own(const Json& saved) override {
    Saved in(saved);
    bytes_ = in.number("bytes");
    header_ = in.bytes("header", kFixedBytes + kDimensionBytes * kDimensionsMax);
    return in.status();
  }

  unsigned char byte(std::size_t at) const { return static_cast<unsigned char>(header_[at]); }
  std::size_t dimensions() const { return std::min<std::size_t>(byte(3), kDimensionsMax); }
  std::size_t header_bytes() const {
    return header_.size() < kFixedBytes ? kFixedBytes
                                        : kFixedBytes + kDimensionBytes * dimensions();
  }
  std::uint64_t dimension(std::size_t index) const {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < kDimensionBytes; ++i)
      out = out << 8U | byte(kFixedBytes + kDimensionBytes * index + i);
    return out;
  }
  /// 0: too large.
  std::uint64_t item_bytes() const {
    std::uint64_t out = number_bytes(byte(2));
    for (std::size_t i = 1; i < dimensions(); ++i) {
      if (dimension(i) != 0 && out > kItemBytesMax / dimension(i)) return 0;
      out *= dimension(i);
    }
    return out;
  }
  std::string problem() const {
    if (header_.size() >= kFixedBytes &&
        (byte(0) != 0 || byte(1) != 0 || number_bytes(byte(2)) == 0 || byte(3) == 0 ||
         byte(3) > kDimensionsMax))
      return "the file does not begin like an idx file: two zero bytes, type, dimensions";
    if (header_.size() < header_bytes()) return "the file ends in its header";
    if (item_bytes() == 0) return "the header gives no possible size of an item";
    return "";
  }

  std::string header_;       // at most header_bytes()
  std::uint64_t bytes_ = 0;  // of the file so far
};

}  // namespace

extern const Format kIdx;
const Format kIdx{.name = "idx",
                  .sample = "an item of the first dimension",
                  .stream = [](const FormatOptions&) -> std::unique_ptr<StreamScanner> {
                    return std::make_unique<IdxScanner>();
                  }};

}  // namespace varda::dataset
