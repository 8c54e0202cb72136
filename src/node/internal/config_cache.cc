#include "node/internal/config_cache.h"

#include "base/log.h"
#include "codec/digest.h"

namespace varda::node::internal {
namespace {

class ConfigCache final : public ConfigSource {
 public:
  ConfigCache(Host& host, os::FileSystem& fs, os::Path file, std::string ns)
      : host_(host), fs_(fs), file_(std::move(file)), ns_(std::move(ns)) {}

  Result<Data> get(Kind kind, const std::string& name) override {
    const std::string noun = kind == Kind::kConfigMap ? "configmap" : "secret";
    Result<Json> object =
        kind == Kind::kConfigMap ? host_.config_map(ns_, name) : host_.secret(ns_, name);
    if (object.ok()) {
      remember(noun + "/" + name, *object);
      return decode(kind, *object);
    }
    if (object.error().code() == Code::kNotFound)
      return Error(Code::kNotFound, noun + " \"" + name + "\" not found");
    load();
    if (const Json* known = known_.find(noun + "/" + name)) return decode(kind, *known);
    return std::move(object).error().context(noun + " \"" + name + "\"");
  }

 private:
  static Result<Data> decode(Kind kind, const Json& object) {
    Data data;
    for (const auto& [key, value] : object["data"].as_object()) {
      if (kind == Kind::kConfigMap) {
        data[key] = value.as_string();
        continue;
      }
      TRY(data[key], codec::unbase64(value.as_string()));
    }
    for (const auto& [key, value] : object["binaryData"].as_object()) {
      TRY(data[key], codec::unbase64(value.as_string()));
    }
    return data;
  }

  void load() {
    if (loaded_) return;
    loaded_ = true;
    const auto text = os::read_file(fs_, file_);
    if (!text.ok()) return;
    auto parsed = codec::parse_json(*text);
    if (parsed.ok() && parsed->is_object()) known_ = std::move(parsed).value();
  }

  void remember(const std::string& key, const Json& object) {
    load();
    Json entry = Json::object({{"data", object["data"]}, {"binaryData", object["binaryData"]}});
    if (const Json* known = known_.find(key); known != nullptr && *known == entry) return;
    known_.set(key, std::move(entry));
    const Status written = os::write_file_atomically(fs_, file_, codec::write_json(known_), 0600);
    // The pod starts anyway; only starts without the API server are affected.
    if (!written.ok())
      log::warn("pod configuration not persisted, restarts need the API server",
                {{"error", written.error()}});
  }

  Host& host_;
  os::FileSystem& fs_;
  const os::Path file_;
  const std::string ns_;
  Json known_ = Json::object();
  bool loaded_ = false;
};

}  // namespace

std::unique_ptr<ConfigSource> make_config_cache(Host& host, os::FileSystem& fs, os::Path file,
                                                std::string ns) {
  return std::make_unique<ConfigCache>(host, fs, std::move(file), std::move(ns));
}

}  // namespace varda::node::internal
