#include "agent/datasets/record.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "api/describe.h"
#include "base/log.h"
#include "codec/digest.h"

namespace varda::agent::datasets {
namespace {

using codec::Json;

constexpr int kVersion = 1;
constexpr std::uint64_t kRecordBytesMax = 64u << 20;

Json json_of(const os::FileFacts& facts) {
  // As strings, because device and inode need all 64 bits.
  return Json::object({{"kind", static_cast<int>(facts.kind)},
                       {"sizeBytes", std::to_string(facts.size_bytes)},
                       {"device", std::to_string(facts.device)},
                       {"inode", std::to_string(facts.inode)},
                       {"modified", facts.modified_ns},
                       {"changed", facts.changed_ns}});
}

std::optional<os::FileFacts> facts_of(const Json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto number = [&json](const char* name) {
    return std::strtoull(json[name].as_string().c_str(), nullptr, 10);
  };
  os::FileFacts out;
  out.kind = static_cast<os::FileKind>(json["kind"].as_integer());
  out.size_bytes = number("sizeBytes");
  out.device = number("device");
  out.inode = number("inode");
  out.modified_ns = json["modified"].as_integer();
  out.changed_ns = json["changed"].as_integer();
  return out;
}

template <typename T>
Result<T> part(const Json& json, const char* what) {
  T out;
  if (const auto wrong = api::read_struct(api::type_info<T>(), &out, json))
    return Error(Code::kCorrupt, std::string(what) + "." + wrong->path + ": " + wrong->what);
  return out;
}

Result<Record> parse(std::string_view text) {
  TRY(const Json json, codec::parse_json(text));
  if (json["version"].as_integer() != kVersion) return Error(Code::kCorrupt, "of another version");
  Record out;
  TRY(out.spec, part<api::EdgeDataset>(json["dataset"], "dataset"));
  TRY(out.report, part<api::EdgeDatasetReport>(json["report"], "report"));
  out.state = json["state"].as_string();
  out.facts = facts_of(json["facts"]);
  if (json["ageSeconds"].is_integer())
    out.age = std::chrono::seconds(std::max<std::int64_t>(json["ageSeconds"].as_integer(), 0));
  return out;
}

}  // namespace

bool same_dataset(const api::EdgeDataset& a, const api::EdgeDataset& b) {
  const auto what = [](const api::EdgeDataset& d) {
    return std::tie(d.key, d.uid, d.path, d.format, d.header);
  };
  return what(a) == what(b);
}

std::string Records::name_of(std::string_view key) const {
  return codec::Sha256::of(key).hex().substr(0, 32) + ".json";
}

Result<std::optional<Record>> Records::read(const api::EdgeDataset& spec) {
  const os::Path file = directory_ / name_of(spec.key);
  const auto text = os::read_file(fs_, file, kRecordBytesMax);
  const std::optional<Record> none;
  if (!text.ok()) {
    if (text.error().code() == Code::kNotFound) return none;
    return text.error();
  }
  auto record = parse(*text);
  if (!record.ok()) {
    log::warn("dataset record damaged, counting again",
              {{"file", file.string()}, {"error", record.error()}});
    return none;
  }
  if (!same_dataset(record->spec, spec)) return none;
  return std::optional(std::move(*record));
}

Status Records::write(const Record& record) {
  Json json = Json::object({{"version", kVersion},
                            {"dataset", api::write_part(record.spec)},
                            {"report", api::write_part(record.report)},
                            {"state", record.state}});
  if (record.facts) json.set("facts", json_of(*record.facts));
  if (record.age) json.set("ageSeconds", record.age->count());
  TRY(const auto existing, fs_.stat(directory_));
  if (!existing) {
    TRY_VOID(fs_.make_directories(directory_, 0700));
    TRY_VOID(fs_.sync_directory(directory_.parent_path()));
  }
  return os::write_file_atomically(fs_, directory_ / name_of(record.spec.key),
                                   codec::write_json(json), 0600);
}

Status Records::keep_only(const std::set<std::string>& keys) {
  TRY(const auto existing, fs_.stat(directory_));
  if (!existing) return {};
  TRY_VOID(os::remove_leftovers(fs_, directory_));
  std::set<std::string> names;
  for (const std::string& key : keys) names.insert(name_of(key));
  TRY(const auto found, fs_.list(directory_));
  for (const std::string& name : found)
    if (!names.contains(name)) TRY_VOID(fs_.remove(directory_ / name));
  return {};
}

}  // namespace varda::agent::datasets
