#include "samples/mixed.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "codec/digest.h"

namespace varda::samples {
namespace {

constexpr std::size_t kReadAtOnce = 64;

class Mixed final : public Dataset {
 public:
  explicit Mixed(std::vector<Part> parts) : parts_(std::move(parts)) {}

  Status start(const Context& ctx) {
    codec::Sha256Stream digest;
    const bool classes = !first().class_counts().empty();
    if (classes) counts_.resize(first().outputs());
    for (const Part& part : parts_) {
      if (part.data->outputs() != first().outputs() || part.data->classes() != first().classes())
        return Error(Code::kInvalid, "the datasets have different classes or targets");
      firsts_.push_back(size_);
      size_ += part.indices.size();
      for (const std::size_t index : part.indices) digest.update(part.data->place(index) + "\n");
      digest.update("\n");
      if (!classes) continue;
      TRY(const auto labels, part.data->labels(ctx, part.indices));
      for (const std::int64_t label : labels) {
        const auto at = static_cast<std::size_t>(label);
        if (label >= 0 && at < counts_.size()) ++counts_[at];
      }
    }
    fingerprint_ = "sha256:" + digest.finish().hex();
    return {};
  }

  std::size_t size() const override { return size_; }
  const std::vector<std::string>& classes() const override { return first().classes(); }
  std::size_t outputs() const override { return first().outputs(); }
  std::vector<std::uint64_t> class_counts() const override { return counts_; }
  std::string fingerprint() const override { return fingerprint_; }
  std::vector<double> fill() const override { return first().fill(); }
  std::vector<std::string> features() const override { return first().features(); }
  std::string header() const override { return first().header(); }

  std::string place(std::size_t index) const override {
    const auto [part, at] = find(index);
    return part->data->place(at);
  }
  Result<std::string> picture(std::size_t index) const override {
    const auto [part, at] = find(index);
    return part->data->picture(at);
  }
  Result<std::string> line(std::size_t index) const override {
    const auto [part, at] = find(index);
    return part->data->line(at);
  }

  Result<std::vector<std::int64_t>> labels(const Context& ctx,
                                           std::span<const std::size_t> indices) const override {
    std::vector<std::int64_t> out(indices.size());
    for (const Rows& rows : rows_of(indices)) {
      TRY(const auto labels, rows.part->data->labels(ctx, rows.indices));
      if (labels.size() != rows.places.size()) return labels;  // no classification
      for (std::size_t i = 0; i < labels.size(); ++i) out[rows.places[i]] = labels[i];
    }
    return out;
  }

  Result<Batch> read(std::span<const std::size_t> indices, const Augment& augment,
                     std::uint64_t seed) const override {
    tensor::Pool memory(0);
    return read_until(Context::background(), indices, augment, seed, memory);
  }

  Result<Batch> read_until(const Context& ctx, std::span<const std::size_t> indices,
                           const Augment& augment, std::uint64_t seed,
                           tensor::Pool& memory) const override {
    for (const std::size_t index : indices)
      if (index >= size_)
        return Error(Code::kInvalid, "there is no sample " + std::to_string(index) + " among " +
                                         std::to_string(size_));
    Batch out;
    for (const Rows& rows : rows_of(indices)) {
      TRY(Batch read, rows.part->data->read_until(ctx, rows.indices, augment, seed, memory));
      TRY_VOID(place_rows(read, rows.places, indices.size(), memory, out));
    }
    out.indices.assign(indices.begin(), indices.end());
    return out;
  }

 private:
  /// The samples of a batch that are in one part.
  struct Rows {
    const Part* part = nullptr;
    std::vector<std::size_t> indices, places;  // in the part's data, in the batch
  };

  const Dataset& first() const { return *parts_.front().data; }

  std::pair<const Part*, std::size_t> find(std::size_t index) const {
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), index);
    const auto number = static_cast<std::size_t>(after - firsts_.begin()) - 1;
    return {&parts_[number], parts_[number].indices.at(index - firsts_[number])};
  }

  std::vector<Rows> rows_of(std::span<const std::size_t> indices) const {
    std::vector<Rows> out;
    for (std::size_t place = 0; place < indices.size(); ++place) {
      const auto [part, at] = find(indices[place]);
      const Part* const wanted = part;
      auto rows = std::ranges::find(out, wanted, &Rows::part);
      if (rows == out.end()) rows = out.insert(out.end(), Rows{.part = wanted});
      rows->indices.push_back(at);
      rows->places.push_back(place);
    }
    return out;
  }

  static Status place_rows(const Batch& read, const std::vector<std::size_t>& places,
                           std::size_t count, tensor::Pool& memory, Batch& out) {
    const std::size_t present = places.size();
    const std::size_t bytes = read.input.bytes().size() / present;
    if (out.input.bytes().empty()) {
      tensor::Shape shape = read.input.shape();
      shape[0] = static_cast<std::int64_t>(count);
      TRY(out.input, memory.allocate(read.input.dtype(), std::move(shape)));
      if (!read.labels.empty()) out.labels.resize(count);
      out.targets.resize(read.targets.size() / present * count);
    }
    const std::size_t width = read.targets.size() / present;
    if (out.input.bytes().size() != bytes * count || out.targets.size() != width * count ||
        out.labels.empty() != read.labels.empty())
      return Error(Code::kInvalid, "the datasets have samples of different shapes");
    for (std::size_t i = 0; i < present; ++i) {
      std::ranges::copy(
          read.input.bytes().subspan(i * bytes, bytes),
          out.input.mutable_bytes().begin() + static_cast<std::ptrdiff_t>(places[i] * bytes));
      if (!read.labels.empty()) out.labels[places[i]] = read.labels[i];
      std::copy_n(read.targets.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                  out.targets.begin() + static_cast<std::ptrdiff_t>(places[i] * width));
    }
    return {};
  }

  const std::vector<Part> parts_;
  std::vector<std::size_t> firsts_;  // number of each part's first sample
  std::size_t size_ = 0;
  std::vector<std::uint64_t> counts_;
  std::string fingerprint_;
};

}  // namespace

Result<std::vector<std::int64_t>> Dataset::labels(const Context& ctx,
                                                  std::span<const std::size_t> indices) const {
  std::vector<std::int64_t> out;
  tensor::Pool memory(1);
  for (std::size_t at = 0; at < indices.size(); at += kReadAtOnce) {
    const std::size_t count = std::min(kReadAtOnce, indices.size() - at);
    TRY(const Batch batch, read_until(ctx, indices.subspan(at, count), {}, 0, memory));
    out.insert(out.end(), batch.labels.begin(), batch.labels.end());
  }
  return out;
}

Result<std::shared_ptr<const Dataset>> mix(const Context& ctx, std::vector<Part> parts) {
  CHECK(!parts.empty());
  auto out = std::make_shared<Mixed>(std::move(parts));
  TRY_VOID(out->start(ctx));
  return std::shared_ptr<const Dataset>(std::move(out));
}

}  // namespace varda::samples
