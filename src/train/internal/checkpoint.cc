#include "train/internal/checkpoint.h"

#include <cstring>

#include "codec/digest.h"

namespace varda::train {
namespace {

constexpr std::string_view kMagic = "VARDATR1";
constexpr std::size_t kDigestBytes = 32;

void put(std::string& out, std::uint64_t number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof bytes);
}

void put(std::string& out, const std::vector<Checkpoint::Item>& items) {
  put(out, items.size());
  for (const Checkpoint::Item& item : items) {
    put(out, item.name.size());
    out += item.name;
    put(out, item.values.size());
    out.append(reinterpret_cast<const char*>(item.values.data()),
               item.values.size() * sizeof(float));
  }
}

std::string_view digest_of(const codec::Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

/// Reads in order; every later read fails after a failed one.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : remaining_(bytes) {}

  std::string_view take(std::uint64_t count) {
    if (count > remaining_.size()) {
      failed_ = true;
      remaining_ = {};
      return {};
    }
    const std::string_view out = remaining_.substr(0, count);
    remaining_.remove_prefix(count);
    return out;
  }
  std::uint64_t number() {
    std::uint64_t out = 0;
    const std::string_view bytes = take(sizeof out);
    if (bytes.size() == sizeof out) std::memcpy(&out, bytes.data(), sizeof out);
    return out;
  }
  std::vector<Checkpoint::Item> items() {
    std::vector<Checkpoint::Item> out;
    for (std::uint64_t left = number(); left > 0 && !failed_; --left) {
      Checkpoint::Item& item = out.emplace_back();
      item.name = take(number());
      const std::uint64_t count = number();
      if (count > remaining_.size() / sizeof(float)) failed_ = true;
      if (failed_) break;
      const std::string_view bytes = take(count * sizeof(float));
      item.values.resize(count);
      if (count > 0) std::memcpy(item.values.data(), bytes.data(), bytes.size());
    }
    return out;
  }
  bool ended() const { return !failed_ && remaining_.empty(); }

 private:
  std::string_view remaining_;
  bool failed_ = false;
};

}  // namespace

std::string Checkpoint::encode() const {
  std::string out(kMagic);
  put(out, steps);
  put(out, weights);
  put(out, state);
  out += digest_of(codec::Sha256::of(out));
  return out;
}

Result<Checkpoint> Checkpoint::decode(std::string_view bytes) {
  const Error corrupt(Code::kCorrupt, "the checkpoint is damaged");
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + kDigestBytes) return corrupt;
  const std::string_view content = bytes.substr(0, bytes.size() - kDigestBytes);
  if (digest_of(codec::Sha256::of(content)) != bytes.substr(content.size())) return corrupt;
  Cursor cursor(content.substr(kMagic.size()));
  Checkpoint out;
  out.steps = cursor.number();
  out.weights = cursor.items();
  out.state = cursor.items();
  if (!cursor.ended()) return corrupt;
  return out;
}

}  // namespace varda::train
