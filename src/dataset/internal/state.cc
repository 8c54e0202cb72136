#include "dataset/internal/state.h"

#include <cstdlib>

#include "codec/digest.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset::internal {
namespace {

Error damaged(std::string_view why) {
  return Error(Code::kCorrupt, "the state is damaged: " + std::string(why));
}

/// Adds version, format, options and a hash to the members of `count`.
std::string seal(codec::Json count, const Format& format, const FormatOptions& options) {
  count.set("version", State::kVersion);
  count.set("format", format.name);
  count.set("header", to_string(options.header));
  const std::string sum = Hash::of(codec::write_json(count)).hex();
  return codec::write_json(codec::Json::object({{"count", std::move(count)}, {"sum", sum}})) + "\n";
}

/// Returns the members of a sealed text; kCorrupt.
Result<codec::Json> unseal(std::string_view text, const Format& format,
                           const FormatOptions& options) {
  const auto parsed = codec::parse_json(text);
  if (!parsed.ok()) return damaged("no JSON");
  const codec::Json* count = parsed->find("count");
  if (count == nullptr || (*parsed)["sum"].as_string() != Hash::of(codec::write_json(*count)).hex())
    return damaged("its checksum is wrong");
  Saved in(*count);
  if (in.number("version") != State::kVersion)
    return Error(Code::kCorrupt, "the state is of another version of this program");
  if (in.text("format") != format.name || in.text("header") != to_string(options.header))
    return Error(Code::kCorrupt, "the state is of another format or header");
  return *count;
}

}  // namespace

std::string State::text(const Format& format, const FormatOptions& options) const {
  return seal(to_json(), format, options);
}

Result<State> State::parse(std::string_view text, const Format& format,
                           const FormatOptions& options) {
  TRY(const codec::Json count, unseal(text, format, options));
  return from_json(count);
}

codec::Json State::to_json() const {
  return codec::Json::object({{"device", std::to_string(device)},
                              {"inode", std::to_string(inode)},
                              {"offset", offset},
                              {"head", head.hex()},
                              {"tail", tail.hex()},
                              {"chain", chain.hex()},
                              {"scanner", scanner}});
}

Result<State> State::from_json(const codec::Json& json) {
  Saved in(json);
  State out;
  const auto whole = [&](std::string_view name) -> std::uint64_t {
    const std::string digits = in.text(name, 20);
    return digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos
               ? 0
               : std::strtoull(digits.c_str(), nullptr, 10);
  };
  out.device = whole("device");
  out.inode = whole("inode");
  out.offset = in.number("offset");
  TRY(out.head, Hash::parse(in.text("head")));
  TRY(out.tail, Hash::parse(in.text("tail")));
  TRY(out.chain, Hash::parse(in.text("chain")));
  out.scanner = json["scanner"];
  TRY_VOID(in.status());
  return out;
}

std::string FolderState::text(const Format& format, const FormatOptions& options) const {
  codec::Json all = codec::Json::array();
  for (const auto& [path, file] : files) {
    codec::Json one = file.state.to_json();
    one.set("path", codec::base64(path));  // a name may be no UTF-8
    one.set("times", file.times);
    one.set("fingerprint", file.fingerprint);
    all.push_back(std::move(one));
  }
  return seal(codec::Json::object({{"files", std::move(all)}}), format, options);
}

Result<FolderState> FolderState::parse(std::string_view text, const Format& format,
                                       const FormatOptions& options) {
  TRY(const codec::Json count, unseal(text, format, options));
  const codec::Json* all = count.find("files");
  if (all == nullptr || !all->is_array()) return damaged("no files");
  FolderState out;
  for (const codec::Json& one : all->as_array()) {
    Saved in(one);
    const std::string path = in.bytes("path", 64 << 10);
    File& file = out.files[path];
    file.times = in.text("times");
    file.fingerprint = in.text("fingerprint");
    TRY_VOID(in.status());
    TRY(file.state, State::from_json(one));
  }
  return out;
}

}  // namespace varda::dataset::internal
