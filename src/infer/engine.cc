#include "infer/engine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dlfcn.h>

#include "base/log.h"
#include "infer/plugin_abi.h"

namespace varda::infer {
namespace {

using tensor::DType;
static_assert(static_cast<int>(DType::kBool) == VARDA_DTYPE_BOOL &&
              static_cast<int>(DType::kFp32) == VARDA_DTYPE_FP32 &&
              static_cast<int>(DType::kBytes) == VARDA_DTYPE_BYTES &&
              static_cast<int>(DType::kBf16) == VARDA_DTYPE_BF16);

void log_line(std::int32_t level, const char* message) {
  log::write(
      static_cast<log::Level>(std::clamp<std::int32_t>(level, VARDA_LOG_DEBUG, VARDA_LOG_ERROR)),
      "engine", {{"message", message}});
}

constexpr varda_engine_host kHost = {sizeof(varda_engine_host), log_line};

Error error_of(std::int32_t code, varda_engine_error& error) {
  error.message[sizeof error.message - 1] = '\0';
  std::string message = error.message[0] != '\0' ? error.message : "the engine gave no reason";
  switch (code) {
    case VARDA_ENGINE_INVALID:
      return Error(Code::kInvalid, std::move(message));
    case VARDA_ENGINE_UNSUPPORTED:
      return Error(Code::kUnsupported, std::move(message));
    case VARDA_ENGINE_UNAVAILABLE:
      return Error(Code::kUnavailable, std::move(message));
    case VARDA_ENGINE_EXHAUSTED:
      return Error(Code::kExhausted, std::move(message));
    default:
      return Error(Code::kInternal, std::move(message));
  }
}

Result<std::vector<tensor::Spec>> specs_of(const varda_engine_spec* specs, std::uint32_t count) {
  std::vector<tensor::Spec> out;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto dtype = tensor::dtype_of(specs[i].dtype);
    if (specs[i].name == nullptr || !dtype || (specs[i].rank > 0 && specs[i].dims == nullptr)) {
      return Error(Code::kInternal,
                   "the engine describes tensor " + std::to_string(i) + " wrongly");
    }
    out.push_back(
        {specs[i].name, *dtype, tensor::Shape(specs[i].dims, specs[i].dims + specs[i].rank)});
  }
  return out;
}

class PluginModel final : public Model {
 public:
  PluginModel(const varda_engine_api& api, varda_engine_model* model) : api_(api), model_(model) {}
  ~PluginModel() override { api_.unload(model_); }

  Status describe() {
    const varda_engine_model_info* info = api_.info(model_);
    if (info == nullptr) return Error(Code::kInternal, "the engine does not describe the model");
    TRY(inputs_, specs_of(info->inputs, info->inputs_count));
    TRY(outputs_, specs_of(info->outputs, info->outputs_count));
    concurrent_runs_max_ = info->concurrent_runs_max;
    return {};
  }

  const std::vector<tensor::Spec>& inputs() const override { return inputs_; }
  const std::vector<tensor::Spec>& outputs() const override { return outputs_; }
  unsigned concurrent_runs_max() const override { return concurrent_runs_max_; }

  Result<std::vector<tensor::Named>> run(std::span<const tensor::Named> inputs,
                                         std::span<const std::string> outputs) override {
    TRY_VOID(check(inputs));
    std::vector<varda_engine_tensor> in;
    in.reserve(inputs.size());
    for (const tensor::Named& input : inputs) {
      const tensor::Tensor& t = input.tensor;
      in.push_back({input.name.c_str(), static_cast<std::int32_t>(t.dtype()),
                    static_cast<std::uint32_t>(t.shape().size()), t.shape().data(),
                    t.bytes().data(), t.bytes().size()});
    }
    std::vector<const char*> names;
    names.reserve(outputs.size());
    for (const std::string& name : outputs) {
      if (std::none_of(outputs_.begin(), outputs_.end(),
                       [&](const tensor::Spec& spec) { return spec.name == name; })) {
        return Error(Code::kInvalid, "the model has no output \"" + name + "\"");
      }
      names.push_back(name.c_str());
    }
    varda_engine_error error;
    error.message[0] = '\0';
    varda_engine_result* raw = nullptr;
    const std::int32_t code =
        api_.run(model_, in.data(), static_cast<std::uint32_t>(in.size()), names.data(),
                 static_cast<std::uint32_t>(names.size()), &raw, &error);
    if (code != VARDA_ENGINE_OK) return error_of(code, error);
    const std::shared_ptr<const void> result(raw, [&api = api_](const void* r) {
      api.free_result(static_cast<varda_engine_result*>(const_cast<void*>(r)));
    });
    return tensors_of(raw, result);
  }

 private:
  Status check(std::span<const tensor::Named> inputs) const {
    for (const tensor::Spec& spec : inputs_) {
      const auto it = std::find_if(inputs.begin(), inputs.end(), [&](const tensor::Named& input) {
        return input.name == spec.name;
      });
      if (it == inputs.end())
        return Error(Code::kInvalid,
                     "input \"" + spec.name + "\" is missing; the model takes " + names());
      if (it->tensor.dtype() != spec.dtype) {
        return Error(Code::kInvalid, "input \"" + spec.name + "\" is " +
                                         std::string(to_string(spec.dtype)) + ", not " +
                                         std::string(to_string(it->tensor.dtype())));
      }
      if (!tensor::fits(it->tensor.shape(), spec.shape)) {
        return Error(Code::kInvalid, "input \"" + spec.name + "\" takes shape " +
                                         tensor::to_string(spec.shape) + ", not " +
                                         tensor::to_string(it->tensor.shape()));
      }
    }
    for (const tensor::Named& input : inputs) {
      if (std::none_of(inputs_.begin(), inputs_.end(),
                       [&](const tensor::Spec& spec) { return spec.name == input.name; }))
        return Error(Code::kInvalid,
                     "the model has no input \"" + input.name + "\"; it takes " + names());
    }
    if (inputs.size() != inputs_.size()) return Error(Code::kInvalid, "an input occurs twice");
    return {};
  }

  /// "\"a\", \"b\""
  std::string names() const {
    std::string out;
    for (const tensor::Spec& spec : inputs_)
      out += (out.empty() ? "\"" : ", \"") + spec.name + "\"";
    return out;
  }

  Result<std::vector<tensor::Named>> tensors_of(const varda_engine_result* raw,
                                                const std::shared_ptr<const void>& owner) const {
    std::uint32_t count = 0;
    const varda_engine_tensor* tensors = api_.tensors(raw, &count);
    std::vector<tensor::Named> out;
    out.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const varda_engine_tensor& t = tensors[i];
      const auto dtype = tensor::dtype_of(t.dtype);
      if (t.name == nullptr || !dtype)
        return Error(Code::kInternal,
                     "the engine's output " + std::to_string(i) + " is not described");
      auto made = tensor::Tensor::over(
          *dtype, tensor::Shape(t.dims, t.dims + t.rank),
          {static_cast<const std::byte*>(t.data), static_cast<std::size_t>(t.size_bytes)}, owner);
      if (!made.ok())
        return Error(Code::kInternal, std::string("the engine's output \"") + t.name +
                                          "\": " + made.error().message());
      out.push_back({t.name, std::move(made).value()});
    }
    return out;
  }

  const varda_engine_api& api_;
  varda_engine_model* const model_;
  std::vector<tensor::Spec> inputs_;
  std::vector<tensor::Spec> outputs_;
  unsigned concurrent_runs_max_ = 0;
};

class PluginEngine final : public Engine {
 public:
  explicit PluginEngine(const varda_engine_api& api) : api_(api), name_(api.name) {}
  const std::string& name() const override { return name_; }
  std::string library_version() const override {
    const char* version = api_.library_version();
    return version != nullptr ? version : "";
  }

  Result<std::unique_ptr<Model>> load(const LoadOptions& options) override {
    const std::string directory = options.directory.string();
    const std::string file = options.file.string();
    std::vector<varda_engine_option> pairs;
    for (const auto& [name, value] : options.options)
      pairs.push_back({name.c_str(), value.c_str()});
    const varda_engine_load_options raw = {sizeof raw,
                                           directory.c_str(),
                                           file.c_str(),
                                           options.intra_op_threads,
                                           options.memory_arena ? 1u : 0u,
                                           pairs.data(),
                                           static_cast<std::uint32_t>(pairs.size()),
                                           options.model.empty() ? nullptr : options.model.data(),
                                           options.model.size()};
    varda_engine_error error;
    error.message[0] = '\0';
    varda_engine_model* model = nullptr;
    const std::int32_t code = api_.load(&raw, &model, &error);
    if (code != VARDA_ENGINE_OK) return error_of(code, error);
    auto made = std::make_unique<PluginModel>(api_, model);
    TRY_VOID(made->describe());
    return std::unique_ptr<Model>(std::move(made));
  }

 private:
  const varda_engine_api& api_;
  const std::string name_;
};

bool complete(const varda_engine_api& api) {
  return api.size_bytes >= sizeof(varda_engine_api) && api.name != nullptr &&
         api.library_version != nullptr && api.load != nullptr && api.unload != nullptr &&
         api.info != nullptr && api.run != nullptr && api.tensors != nullptr &&
         api.free_result != nullptr;
}

}  // namespace

Result<std::unique_ptr<Engine>> open_engine(const std::filesystem::path& plugin) {
  std::error_code ignored;
  if (!std::filesystem::exists(plugin, ignored))
    return Error(Code::kNotFound, "no engine plug-in " + plugin.string());
  // Never closed: libraries behind engines leave threads and exit handlers that still need the
  // code.
  void* const library = ::dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Error(Code::kInvalid, "engine plug-in does not load: " + std::string(::dlerror()));
  void* const symbol = ::dlsym(library, VARDA_ENGINE_SYMBOL);
  if (symbol == nullptr) {
    return Error(
        Code::kInvalid,
        plugin.string() + " is not an engine plug-in: it has no symbol " VARDA_ENGINE_SYMBOL);
  }
  const varda_engine_api* api =
      reinterpret_cast<varda_engine_entry>(symbol)(VARDA_ENGINE_ABI_VERSION, &kHost);
  if (api == nullptr || api->abi_version != VARDA_ENGINE_ABI_VERSION) {
    return Error(
        Code::kInvalid,
        "engine plug-in " + plugin.string() + " was built for another ABI version" +
            (api != nullptr ? " (" + std::to_string(api->abi_version) + ")" : std::string()) +
            "; this program speaks " + std::to_string(VARDA_ENGINE_ABI_VERSION));
  }
  if (!complete(*api))
    return Error(Code::kInvalid,
                 "engine plug-in " + plugin.string() + " leaves functions out of its table");
  return std::unique_ptr<Engine>(std::make_unique<PluginEngine>(*api));
}

Result<Engine*> Engines::get(std::string_view name) {
  if (name.empty() ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") != std::string_view::npos) {
    return Error(Code::kInvalid,
                 "\"" + std::string(name) + "\" is not an engine name (a-z, 0-9, _ and -)");
  }
  MutexLock lock(mutex_);
  if (const auto it = engines_.find(name); it != engines_.end()) return it->second.get();
  const std::string file = "varda-engine-" + std::string(name) + ".so";
  std::string looked;
  for (const std::filesystem::path& directory : directories_) {
    std::error_code ignored;
    if (std::filesystem::exists(directory / file, ignored)) {
      TRY(std::unique_ptr<Engine> engine, open_engine(directory / file));
      return engines_.emplace(std::string(name), std::move(engine)).first->second.get();
    }
    looked += (looked.empty() ? "" : ", ") + directory.string();
  }
  return Error(Code::kNotFound, "no engine \"" + std::string(name) + "\": " + file + " is not in " +
                                    (looked.empty() ? "any directory" : looked));
}

}  // namespace varda::infer
