#include "dataset/internal/scanner.h"

#include "codec/digest.h"

namespace varda::dataset {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

void StreamScanner::pass(std::string_view bytes) {
  scan(bytes);
  offset_ += bytes.size();
}

void StreamScanner::feed(std::string_view bytes) {
  while (!begun_ && !bytes.empty()) {
    held_ += bytes.front();
    bytes.remove_prefix(1);
    if (held_ == kByteOrderMark) {
      offset_ += held_.size();
      held_.clear();
      begun_ = true;
    } else if (!kByteOrderMark.starts_with(held_)) {
      begun_ = true;
      pass(held_);
      held_.clear();
    }
  }
  if (!bytes.empty()) pass(bytes);
}

Tally StreamScanner::end() const {
  const std::unique_ptr<StreamScanner> copy = clone();
  if (!copy->held_.empty()) copy->pass(copy->held_);
  return copy->finish();
}

Json StreamScanner::save() const {
  Json out = save_own();
  out.set("offset", offset_);
  out.set("begun", begun_ ? 1 : 0);
  out.set("held", codec::base64(held_));
  return out;
}

Status StreamScanner::restore(const Json& saved) {
  TRY_VOID(restore_own(saved));
  Saved in(saved);
  offset_ = in.number("offset");
  begun_ = in.flag("begun");
  held_ = in.bytes("held", 2);
  if (!begun_ && !kByteOrderMark.starts_with(held_))
    return Error(Code::kCorrupt, "the member held is invalid");
  return in.status();
}

std::uint64_t Saved::number(std::string_view name, std::uint64_t max) {
  const Json* value = json_.find(name);
  if (value != nullptr && value->is_integer() && value->as_integer() >= 0) {
    const auto number = static_cast<std::uint64_t>(value->as_integer());
    if (number <= max) return number;
  }
  if (wrong_.empty()) wrong_ = name;
  return 0;
}

std::string Saved::bytes(std::string_view name, std::size_t max) {
  const Json* value = json_.find(name);
  if (value != nullptr && value->is_string()) {
    if (auto bytes = codec::unbase64(value->as_string()); bytes.ok() && bytes->size() <= max)
      return std::move(*bytes);
  }
  if (wrong_.empty()) wrong_ = name;
  return {};
}

std::string Saved::text(std::string_view name, std::size_t max) {
  const Json* value = json_.find(name);
  if (value != nullptr && value->is_string() && value->as_string().size() <= max)
    return value->as_string();
  if (wrong_.empty()) wrong_ = name;
  return {};
}

Status Saved::status() const {
  if (wrong_.empty()) return {};
  return Error(Code::kCorrupt, wrong_ + " is missing or wrong");
}

Json save_tally(const Tally& tally) {
  Json out = Json::object({{"samples", tally.samples}, {"malformed", tally.malformed}});
  if (tally.first_malformed) {
    const Malformed& first = *tally.first_malformed;
    out.set("first", Json::object({{"file", first.file},
                                   {"line", first.line},
                                   {"byte", first.byte},
                                   {"why", first.why}}));
  }
  return out;
}

Result<Tally> restore_tally(const Json& saved) {
  Tally out;
  Saved in(saved);
  out.samples = in.number("samples");
  out.malformed = in.number("malformed");
  if (const Json* first = saved.find("first")) {
    Saved at(*first);
    out.first_malformed =
        Malformed{at.text("file"), at.number("line"), at.number("byte"), at.text("why")};
    TRY_VOID(at.status());
  }
  TRY_VOID(in.status());
  if (out.first_malformed.has_value() != (out.malformed > 0))
    return Error(Code::kCorrupt, "malformed and first contradict each other");
  return out;
}

void add_malformed(Tally& tally, Malformed what) {
  if (tally.malformed++ == 0) tally.first_malformed = std::move(what);
}

}  // namespace varda::dataset
