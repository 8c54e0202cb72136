#include "agent/core/state_store.h"

#include <utility>
#include <vector>

#include "base/log.h"

namespace varda::agent::core {
namespace {

store::Options small() {
  store::Options options;
  options.history_events_max = 16;
  options.history_bytes_max = 1 << 20;
  return options;
}

}  // namespace

Result<std::unique_ptr<StateStore>> StateStore::open(const os::Path& file) {
  auto store = store::open_sqlite(file, small());
  if (!store.ok() && store.error().code() == Code::kCorrupt) {
    const os::Path aside = os::Path(file) += ".damaged";
    log::error("agent database damaged, starting with an empty one",
               {{"file", file.string()}, {"error", store.error()}});
    TRY_VOID(os::real_file_system().rename(file, aside));
    for (const char* suffix : {"-wal", "-shm"})
      TRY_VOID(os::real_file_system().remove(os::Path(file) += suffix));
    store = store::open_sqlite(file, small());
  }
  TRY(auto opened, std::move(store));
  return std::unique_ptr<StateStore>(
      new StateStore(std::move(opened)));  // NOLINT: private constructor
}

std::unique_ptr<StateStore> StateStore::in_memory() {
  return std::unique_ptr<StateStore>(
      new StateStore(store::open_memory(small())));  // NOLINT: private constructor
}

std::unique_ptr<StateStore> StateStore::over(std::unique_ptr<store::Store> store) {
  return std::unique_ptr<StateStore>(
      new StateStore(std::move(store)));  // NOLINT: private constructor
}

Result<codec::Json> StateStore::get(std::string_view key) {
  TRY(const auto entry, store_->get(key));
  if (!entry) return codec::Json();
  return codec::parse_json(*entry->value);
}

Status StateStore::put(std::string_view key, const codec::Json& value) {
  const std::string text = codec::write_json(value);
  TRY(const auto entry, store_->get(key));
  if (entry && *entry->value == text) return {};
  TRY([[maybe_unused]] const auto revision, store_->put(std::string(key), text));
  return {};
}

Result<std::map<std::string, codec::Json>> StateStore::entries(const std::string& prefix) {
  TRY(const store::Page page, store_->list({.prefix = prefix}));
  std::map<std::string, codec::Json> out;
  for (const store::Entry& entry : page.entries) {
    TRY(out[entry.key], codec::parse_json(*entry.value).context(entry.key));
  }
  return out;
}

Status StateStore::put_all(const std::map<std::string, codec::Json>& values) {
  std::vector<store::Op> ops;
  for (const auto& [key, value] : values) {
    if (value.is_null()) {
      ops.emplace_back(store::Delete{key, std::nullopt});
    } else {
      ops.emplace_back(store::Put{key, codec::write_json(value), std::nullopt});
    }
  }
  if (ops.empty()) return {};
  TRY([[maybe_unused]] const auto revision, store_->commit(std::move(ops)));
  return {};
}

}  // namespace varda::agent::core
