#include "dataset/internal/state.h"

#include <cstdlib>

#include "dataset/internal/scanner.h"

namespace varda::dataset::internal {
namespace {

Error damaged(std::string_view why) {
  return Error(Code::kCorrupt, "the state is damaged: " + std::string(why));
}

}  // namespace

std::string State::text(const Format& format, const FormatOptions& options) const {
  const codec::Json count = codec::Json::object({{"version", kVersion},
                                                 {"format", format.name},
                                                 {"header", to_string(options.header)},
                                                 {"device", std::to_string(device)},
                                                 {"inode", std::to_string(inode)},
                                                 {"offset", offset},
                                                 {"head", head.hex()},
                                                 {"tail", tail.hex()},
                                                 {"chain", chain.hex()},
                                                 {"scanner", scanner}});
  const std::string sum = Hash::of(codec::write_json(count)).hex();
  return codec::write_json(codec::Json::object({{"count", count}, {"sum", sum}})) + "\n";
}

Result<State> State::parse(std::string_view text, const Format& format,
                           const FormatOptions& options) {
  const auto parsed = codec::parse_json(text);
  if (!parsed.ok()) return damaged("no JSON");
  const codec::Json* count = parsed->find("count");
  if (count == nullptr || (*parsed)["sum"].as_string() != Hash::of(codec::write_json(*count)).hex())
    return damaged("its checksum is wrong");
  Saved in(*count);
  if (in.number("version") != kVersion)
    return Error(Code::kCorrupt, "the state is of another version of this program");
  if (in.text("format") != format.name || in.text("header") != to_string(options.header))
    return Error(Code::kCorrupt, "the state is of another format or header");
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
  out.scanner = (*count)["scanner"];
  TRY_VOID(in.status());
  return out;
}

}  // namespace varda::dataset::internal
