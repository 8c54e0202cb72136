#include "serving/sampling/keeper.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/caught.h"
#include "base/log.h"
#include "codec/text.h"
#include "tiers/scores.h"

namespace varda::serving::sampling {
namespace {

using spool::ClassScore;
using spool::Facts;

constexpr std::string_view kLockFile = ".lock";

// Outputs and answers stay in memory too, and may be larger than the request.
std::size_t bytes_of(const Answered& answered) {
  std::size_t bytes = answered.call.body == nullptr ? 0 : answered.call.bytes();
  for (const tensor::Named& output : answered.outputs) bytes += output.tensor.bytes().size();
  for (const TierAnswer& one : answered.later)
    if (one.envelope.body != nullptr) bytes += one.envelope.body->size();
  return bytes;
}

std::string label_of(std::size_t index, const std::vector<std::string>& labels) {
  return index < labels.size() ? codec::clipped(labels[index], spool::kLabelBytesMax)
                               : std::to_string(index);
}

std::vector<ClassScore> best_of(std::span<const double> values,
                                const std::vector<std::string>& labels) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t count = std::min(order.size(), spool::kBestMax);
  // NaN compares false with everything, so it gets a place below all numbers.
  const auto rank = [&](std::size_t i) { return values[i] == values[i] ? values[i] : -1e300; };
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](std::size_t a, std::size_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
  std::vector<ClassScore> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back({label_of(order[i], labels), values[order[i]]});
  return out;
}

const tensor::Tensor* find_output(const std::vector<tensor::Named>& outputs,
                                  std::string_view name) {
  for (const tensor::Named& one : outputs)
    if (one.name == name) return &one.tensor;
  return nullptr;
}

// The best classes of each row of a later tier's answer: labels with scores, or probabilities.
std::vector<std::vector<ClassScore>> best_rows(const std::vector<tensor::Named>& outputs,
                                               const std::vector<std::string>& labels) {
  std::vector<std::vector<ClassScore>> out;
  const tensor::Tensor* const names = find_output(outputs, "labels");
  const tensor::Tensor* const scores = find_output(outputs, "scores");
  if (names != nullptr && scores != nullptr && names->dtype() == tensor::DType::kBytes &&
      scores->dtype() == tensor::DType::kFp32 && names->shape() == scores->shape() &&
      names->shape().size() == 2) {
    const auto texts = names->strings();
    const auto values = scores->values<float>();
    const auto rows = static_cast<std::size_t>(names->shape()[0]);
    const auto width = static_cast<std::size_t>(names->shape()[1]);
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<ClassScore>& best = out.emplace_back();
      for (std::size_t i = 0; i < std::min(width, spool::kBestMax); ++i)
        best.push_back({codec::is_utf8(texts[row * width + i])
                            ? codec::clipped(texts[row * width + i], spool::kLabelBytesMax)
                            : "?",
                        values[row * width + i]});
    }
    return out;
  }
  std::vector<tensor::Spec> specs;
  for (const tensor::Named& one : outputs)
    specs.push_back({one.name, one.tensor.dtype(), one.tensor.shape()});
  const auto bound = tiers::BoundPolicy::bind(tiers::make_policy("Margin", {}).value(), specs);
  if (!bound.ok()) return out;
  (void)bound->each(outputs, [&](std::size_t, const tiers::Sample& sample, tiers::Verdict) {
    out.push_back(best_of(sample.values, labels));
  });
  return out;
}

// The facts of each row from the first tier's outputs, and whether the row is to be kept.
struct RowFacts {
  bool keep = true;
  std::map<std::string, double> scores;
  std::vector<ClassScore> best;
};

std::vector<RowFacts> row_facts(const Keeper::Item& item, std::size_t rows) {
  const Plan& plan = *item.plan;
  std::vector<RowFacts> out(rows);
  const auto& outputs = item.answered.outputs;
  if (outputs.empty()) return out;
  if (plan.probabilities) {
    (void)plan.probabilities->each(
        outputs, [&](std::size_t row, const tiers::Sample& sample, tiers::Verdict verdict) {
          if (row >= rows || verdict == tiers::Verdict::kInvalid) return;
          const tiers::ClassScores scores = tiers::class_scores(sample.values);
          out[row].scores = {{"confidence", scores.confidence},
                             {"margin", scores.margin},
                             {"entropy", scores.entropy}};
          out[row].best = best_of(sample.values, plan.labels);
        });
  }
  if (!plan.policy || item.control) return out;
  const bool logits = plan.policy->policy().row().input == tiers::PolicyInput::kClassLogits;
  (void)plan.policy->each(
      outputs, [&](std::size_t row, const tiers::Sample& sample, tiers::Verdict verdict) {
        if (row >= rows) return;
        // Boxes of all rows may lie in one tensor. Only one sample for each row separates rows.
        out[row].keep = verdict == tiers::Verdict::kHard;
        if (logits) out[row].scores["energy"] = -tiers::negative_energy(sample.values);
      });
  // The judgement was about the request as a whole.
  if (std::none_of(out.begin(), out.end(), [](const RowFacts& one) { return one.keep; }))
    for (RowFacts& one : out) one.keep = true;
  return out;
}

}  // namespace

Keeper::Keeper(Options options, os::FileSystem& fs, metrics::Registry& registry, Rng& rng)
    : options_(std::move(options)), fs_(fs), registry_(registry), rng_(rng) {}

Keeper::~Keeper() { stop(); }

Model& Keeper::model(const std::string& name) {
  const MutexLock lock(mutex_);
  std::unique_ptr<Model>& out = models_[name];
  if (out == nullptr) out = std::make_unique<Model>(name, *this, registry_);
  return *out;
}

void Keeper::start() {
  if (!thread_.joinable() && !stopping_) thread_ = std::thread([this] { work(); });
}

bool Keeper::submit(Item item) {
  const std::size_t bytes = bytes_of(item.answered);
  const MutexLock lock(mutex_);
  if (stopping_ || queue_.size() >= options_.queue_max ||
      queue_bytes_ + bytes > options_.queue_bytes_max)
    return false;
  start();
  queue_bytes_ += bytes;
  queue_.push_back(std::move(item));
  if (queue_.size() == 1) changed_.notify_all();
  return true;
}

void Keeper::open(std::shared_ptr<const Plan> plan) {
  const MutexLock lock(mutex_);
  if (stopping_) return;
  start();
  queue_.push_back({std::move(plan), {}, false});
  changed_.notify_all();
}

void Keeper::stop() {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
}

void Keeper::flush() {
  const MutexLock lock(mutex_);
  while (!queue_.empty() || busy_) changed_.wait(mutex_);
}

void Keeper::work() {
  for (;;) {
    Item item;
    {
      const MutexLock lock(mutex_);
      busy_ = false;
      if (queue_.empty()) changed_.notify_all();
      while (queue_.empty() && !stopping_) changed_.wait(mutex_);
      if (queue_.empty()) break;
      item = std::move(queue_.front());
      queue_.pop_front();
      queue_bytes_ -= bytes_of(item.answered);
      busy_ = true;
    }
    contain("sample not kept because of an exception", [&] { write(item); });
  }
  for (auto& [name, store] : stores_)
    if (store.spool != nullptr) (void)store.spool->save();
}

spool::Spool* Keeper::store_of(const Plan& plan) {
  Model& model = *plan.model;
  Store& store = stores_[model.name()];
  if (store.spool == nullptr) {
    const SteadyTime now = system_clock().now();
    if (now < store.retry_at) return nullptr;
    store.retry_at = now + options_.retry;
    const std::filesystem::path root = options_.directory / model.name();
    const auto opened = [&]() -> Status {
      TRY_VOID(spool::make_folder(fs_, root, 0775));
      TRY(store.lock, os::FileLock::acquire(root / kLockFile));
      TRY(store.spool, spool::Spool::open({.root = root, .bounds = plan.config.bounds}, fs_, rng_));
      return {};
    }();
    if (!opened.ok()) {
      store.lock.reset();
      model.set_problem(kSpoolUnavailable, opened.error().message());
      log::warn("spool of samples not usable",
                {{"model", model.name()}, {"error", opened.error()}});
      return nullptr;
    }
    model.set_problem("", "");
  }
  if (!(store.spool->bounds() == plan.config.bounds))
    (void)store.spool->set_bounds(plan.config.bounds);
  return store.spool.get();
}

void Keeper::write(const Item& item) {
  Model& model = *item.plan->model;
  spool::Spool* const spool = store_of(*item.plan);
  const bool only_open = item.answered.call.body == nullptr;
  Status status;
  if (spool == nullptr) {
    status = Error(Code::kUnavailable, "the spool is not usable");
  } else {
    status = only_open ? spool->refresh() : keep(*spool, item);
    model.set_stored(spool->count(), spool->bytes());
  }
  if (status.ok()) {
    if (spool != nullptr && !only_open) model.set_problem("", "");
    return;
  }
  if (only_open) return;
  item.plan->counts->dropped.fetch_add(1, std::memory_order_relaxed);
  model.dropped.add();
  if (spool == nullptr) return;
  const bool unsupported = status.error().code() == Code::kUnsupported;
  model.set_problem(unsupported                                 ? "Unsupported"
                    : status.error().code() == Code::kExhausted ? "DiskFull"
                                                                : "WriteFailed",
                    status.error().message());
}

Status Keeper::keep(spool::Spool& spool, const Item& item) {
  const Plan& plan = *item.plan;
  TRY(const std::vector<Row> rows, rows_of(item.answered.call, plan.input, options_.limits));
  const std::vector<RowFacts> about = row_facts(item, rows.size());
  struct Later {
    const TierAnswer* answer;
    std::vector<std::vector<ClassScore>> best;
  };
  std::vector<Later> later;
  for (const TierAnswer& one : item.answered.later) {
    std::optional<std::string> length;
    if (one.envelope.has_binary)
      length = std::to_string(one.envelope.body->size() - one.envelope.binary.size());
    const auto response = oip::parse_infer_response(one.envelope.body, length, options_.limits);
    if (response.ok()) later.push_back({&one, best_rows(response->outputs, plan.labels)});
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!about[i].keep) continue;
    Facts facts;
    facts.model = plan.model->name();
    facts.model_version = plan.version;
    facts.reason = item.control ? Facts::kControl : Facts::kHard;
    if (plan.config.policy) facts.policy = plan.config.policy->name;
    facts.format = rows[i].format;
    facts.row = static_cast<std::int64_t>(i);
    facts.rows = static_cast<std::int64_t>(rows.size());
    facts.scores = about[i].scores;
    if (!item.answered.outputs.empty())
      facts.answers.push_back({plan.first_tier, plan.version, about[i].best});
    for (const Later& one : later) {
      const std::vector<ClassScore> best =
          one.best.size() == rows.size() ? one.best[i] : std::vector<ClassScore>();
      facts.answers.push_back({one.answer->tier, one.answer->envelope.model_version, best});
      const auto& minimum = plan.config.pseudo_label_minimum;
      if (minimum && !best.empty() && best.front().score >= *minimum)
        facts.pseudo_label =
            spool::PseudoLabel{best.front().label, best.front().score, one.answer->tier};
    }
    const std::string group(item.control            ? spool::kControlGroup
                            : about[i].best.empty() ? std::string_view()
                                                    : about[i].best.front().label);
    TRY(const bool kept,
        spool.offer(std::move(facts), rows[i].bytes, group, system_clock().wall()));
    if (!kept) continue;
    plan.counts->kept.fetch_add(1, std::memory_order_relaxed);
    plan.model->kept.add();
  }
  return {};
}

}  // namespace varda::serving::sampling
