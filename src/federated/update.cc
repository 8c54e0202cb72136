#include "federated/update.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "federated/internal/shown.h"
#include "federated/internal/update_names.h"
#include "federated/internal/update_vector.h"
#include "os/positional_file.h"

namespace varda::federated {
namespace {

constexpr std::size_t kMetricsBytesMax = 64 << 10;
constexpr std::uint64_t kCountMax = std::uint64_t{1} << 53;  // exact as a double
constexpr std::pair<std::string_view, Encoding> kEncodings[] = {
    {"dense", Encoding::kDense}, {"int8", Encoding::kInt8}, {"topk", Encoding::kTopK}};

Refusal refused(RefusalReason reason, std::string message) {
  return {reason, Error(Code::kInvalid, std::move(message))};
}

Result<std::uint64_t> parse_count(std::string_view text, std::string_view name) {
  std::uint64_t out = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (failure != std::errc() || end != text.data() + text.size() || out > kCountMax)
    return Error(Code::kInvalid, "the metadata \"" + std::string(name) + "\" is " + shown(text) +
                                     ", not a number up to 2^53");
  return out;
}

/// Everything of the metadata but the encoding.
Result<UpdateInfo> parse_info(const SafetensorsHeader& header) {
  if (header.metadata("format") != kUpdateFormat)
    return Error(Code::kInvalid, "the metadata \"format\" is " + shown(header.metadata("format")) +
                                     ", not \"" + std::string(kUpdateFormat) + "\"");
  UpdateInfo out;
  out.task = header.metadata("task");
  TRY(out.base, codec::Sha256::parse(header.metadata("base")).context("the metadata \"base\""));
  TRY(out.samples, parse_count(header.metadata("samples"), "samples"));
  if (out.samples == 0) return Error(Code::kInvalid, "the metadata \"samples\" is 0");
  TRY(out.steps, parse_count(header.metadata("steps"), "steps"));
  const std::string_view metrics = header.metadata("metrics");
  if (metrics.empty()) return out;
  if (metrics.size() > kMetricsBytesMax)
    return Error(Code::kInvalid, "the metadata \"metrics\" has more than " +
                                     std::to_string(kMetricsBytesMax) + " bytes");
  TRY(out.metrics, codec::parse_json(metrics).context("the metadata \"metrics\""));
  if (!out.metrics.is_object())
    return Error(Code::kInvalid, "the metadata \"metrics\" is no JSON object");
  for (const auto& [name, value] : out.metrics.as_object())
    if (!value.is_number())
      return Error(Code::kInvalid, "the metric " + shown(name) + " is no number");
  return out;
}

/// The places of a file's tensors in the layout.
class Sorting {
 public:
  explicit Sorting(const Layout& layout)
      : layout_(layout), delta_(layout.tensors().size()), control_(layout.tensors().size()) {}

  bool add(const SafetensorsEntry& entry) {
    if (put(entry.name, entry, delta_)) return true;
    std::string_view name = entry.name;
    if (!name.starts_with(kControlPrefix)) return false;
    name.remove_prefix(kControlPrefix.size());
    return put(name, entry, control_);
  }
  const std::vector<EncodedTensor>& delta() const { return delta_; }
  const std::vector<EncodedTensor>& control() const { return control_; }

 private:
  EncodedTensor* slot(std::string_view name, std::vector<EncodedTensor>& in) const {
    const LayoutTensor* const tensor = layout_.find(name);
    return tensor ? &in[static_cast<std::size_t>(tensor - layout_.tensors().data())] : nullptr;
  }
  bool put(std::string_view name, const SafetensorsEntry& entry,
           std::vector<EncodedTensor>& in) const {
    if (EncodedTensor* const found = slot(name, in)) {
      found->values = &entry;
      return true;
    }
    const std::size_t mark = name.rfind('#');
    if (mark == std::string_view::npos) return false;
    EncodedTensor* const found = slot(name.substr(0, mark), in);
    const std::string_view suffix = name.substr(mark);
    if (found == nullptr) return false;
    if (suffix == kScaleSuffix)
      found->scales = &entry;
    else if (suffix == kIndexSuffix)
      found->index = &entry;
    else if (suffix == kValueSuffix)
      found->kept = &entry;
    else
      return false;
    return true;
  }

  const Layout& layout_;
  std::vector<EncodedTensor> delta_, control_;
};

bool is_present(const EncodedTensor& tensor) {
  return tensor.values || tensor.scales || tensor.index || tensor.kept;
}

class UpdateReaderImpl final : public UpdateReader {
 public:
  UpdateReaderImpl(const std::shared_ptr<const os::PositionalFile>& file, LayoutPointer layout)
      : layout_(std::move(layout)), bytes_(file->size()), delta_(file), control_(file) {}

  Result<void, Refusal> load(const SafetensorsHeader& header, const UpdateLimits& limits) {
    auto info = parse_info(header);
    if (!info.ok()) return Refusal{RefusalReason::kFormat, std::move(info).error()};
    info_ = std::move(info).value();
    const auto encoding = parse_encoding(header.metadata("encoding"));
    if (!encoding)
      return refused(RefusalReason::kFormat, "the metadata \"encoding\" is " +
                                                 shown(header.metadata("encoding")) +
                                                 ", not dense, int8 or topk");
    encoding_ = *encoding;
    has_control_ = header.metadata("control") == "yes";
    if (limits.task && *limits.task != info_.task)
      return refused(RefusalReason::kTask, "the update is for task " + shown(info_.task) +
                                               ", not " + shown(*limits.task));
    if (limits.base && *limits.base != info_.base)
      return refused(RefusalReason::kBase, "the update is for the model " + info_.base.hex() +
                                               ", not " + limits.base->hex());
    Sorting sorting(*layout_);
    for (const SafetensorsEntry& entry : header.entries())
      if (!sorting.add(entry))
        return refused(RefusalReason::kShape, "the model has no tensor for " + shown(entry.name));
    for (std::size_t i = 0; i < layout_->tensors().size(); ++i) {
      const LayoutTensor& tensor = layout_->tensors()[i];
      if (is_present(sorting.delta()[i]))
        if (auto added = delta_.add(tensor, sorting.delta()[i]); !added.ok()) return added;
      if (is_present(sorting.control()[i]))
        if (auto added = control_.add(tensor, sorting.control()[i]); !added.ok()) return added;
    }
    if (limits.checked) {
      norm_ = limits.checked->norm;
      control_norm_ = limits.checked->control_norm;
    } else {
      auto norm = delta_.check(layout_->size());
      if (!norm.ok()) return std::move(norm).error();
      norm_ = *norm;
      if (!control_.empty()) {
        auto control = control_.check(layout_->size());
        if (!control.ok()) return std::move(control).error();
        control_norm_ = *control;
      }
    }
    if (limits.norm_max && !(norm_ <= *limits.norm_max))
      return refused(RefusalReason::kNorm, "the norm " + std::to_string(norm_) +
                                               " is above the limit " +
                                               std::to_string(*limits.norm_max));
    return {};
  }

  const Layout& layout() const override { return *layout_; }
  const UpdateInfo& info() const override { return info_; }
  Encoding encoding() const override { return encoding_; }
  std::uint64_t bytes() const override { return bytes_; }
  double norm() const override { return norm_; }
  bool has_control() const override { return has_control_ || !control_.empty(); }
  double control_norm() const override { return control_norm_; }

  void read(std::size_t first, std::span<float> out) const override {
    check_range(first, out.size());
    note(delta_.read(first, out), out);
  }
  std::span<const float> view(std::size_t first, std::span<float> scratch) const override {
    check_range(first, scratch.size());
    const auto out = delta_.view(first, scratch);
    if (out.ok()) return *out;
    note(out.error(), scratch);
    return scratch;
  }
  void read_control(std::size_t first, std::span<float> out) const override {
    check_range(first, out.size());
    note(control_.read(first, out), out);
  }
  Status status() const override {
    const std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    return {};
  }

 private:
  void check_range(std::size_t first, std::size_t count) const {
    CHECK(first <= layout_->size() && count <= layout_->size() - first);
  }
  void note(const Status& status, std::span<float> out) const {
    if (status.ok()) return;
    std::fill(out.begin(), out.end(), 0.0f);
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = status.error();
  }

  const LayoutPointer layout_;
  const std::uint64_t bytes_;
  UpdateInfo info_;
  Encoding encoding_ = Encoding::kDense;
  bool has_control_ = false;
  UpdateVector delta_, control_;
  double norm_ = 0, control_norm_ = 0;
  mutable std::mutex mutex_;
  mutable std::optional<Error> failure_;
};

UpdateReader::Opened loaded(const std::shared_ptr<const os::PositionalFile>& file,
                            LayoutPointer layout, const UpdateLimits& limits) {
  const auto header = SafetensorsHeader::read(*file, limits.file);
  if (!header.ok()) {
    const Code code = header.error().code();
    const bool is_content = code == Code::kInvalid || code == Code::kUnsupported;
    return Refusal{is_content ? RefusalReason::kFormat : RefusalReason::kIo,
                   is_content ? Error(Code::kInvalid, header.error().message()) : header.error()};
  }
  auto out = std::make_unique<UpdateReaderImpl>(file, std::move(layout));
  if (auto status = out->load(*header, limits); !status.ok()) return std::move(status).error();
  return std::unique_ptr<UpdateReader>(std::move(out));
}

}  // namespace

std::string_view to_string(Encoding encoding) {
  for (const auto& [name, value] : kEncodings)
    if (value == encoding) return name;
  return "";
}

std::optional<Encoding> parse_encoding(std::string_view name) {
  for (const auto& [known, value] : kEncodings)
    if (known == name) return value;
  return std::nullopt;
}

std::string_view to_string(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kFormat:
      return "format";
    case RefusalReason::kTask:
      return "task";
    case RefusalReason::kBase:
      return "base";
    case RefusalReason::kShape:
      return "shape";
    case RefusalReason::kNotFinite:
      return "not_finite";
    case RefusalReason::kNorm:
      return "norm";
    case RefusalReason::kIo:
      return "io";
  }
  return "";
}

UpdateReader::Opened UpdateReader::open(os::FileSystem& fs, const os::Path& path,
                                        LayoutPointer layout, const UpdateLimits& limits) {
  auto file = os::PositionalFile::open(fs, path);
  if (!file.ok()) return Refusal{RefusalReason::kIo, std::move(file).error()};
  return loaded(*file, std::move(layout), limits);
}

UpdateReader::Opened UpdateReader::of(std::string bytes, LayoutPointer layout,
                                      const UpdateLimits& limits) {
  return loaded(os::PositionalFile::of(std::move(bytes)), std::move(layout), limits);
}

}  // namespace varda::federated
