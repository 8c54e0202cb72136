// Synchronous rounds with the mean of all clients, for tests.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "flower/rounds.h"

namespace varda::flower::testing {

class MeanRounds final : public Rounds {
 public:
  struct Options {
    std::size_t clients = 1;
    int rounds = 1;
    bool evaluate = false;                         // after the last round
    std::vector<std::vector<float>> weights = {};  // empty: the first client gives them
  };
  explicit MeanRounds(Options options) : options_(std::move(options)) {
    const MutexLock lock(mutex_);
    weights_ = options_.weights;
    if (!weights_.empty()) use_weights();
  }

  Status joined(const std::string& client, const net::Peer&) override {
    change([&]() REQUIRES(mutex_) { present_.insert(client); });
    return {};
  }
  void left(const std::string& client) override {
    change([&]() REQUIRES(mutex_) {
      present_.erase(client);
      left_.insert(client);
    });
  }

  Result<std::optional<Task>> next(const std::string& client) override {
    const MutexLock lock(mutex_);
    if (weights_.empty()) {
      if (asked_.empty() || asked_ == client) {
        asked_ = client;
        return std::optional(Task{.kind = Task::Kind::kParameters, .id = "initial"});
      }
      return std::optional<Task>();
    }
    if (round_ > options_.rounds) {
      if (options_.evaluate && !evaluated_.contains(client))
        return std::optional(
            Task{.kind = Task::Kind::kEvaluate, .id = "evaluate", .model = model_});
      return std::optional(Task{.kind = Task::Kind::kLeave, .id = "end"});
    }
    if (present_.size() < options_.clients || updates_.contains(client))
      return std::optional<Task>();
    return std::optional(Task{.kind = Task::Kind::kFit,
                              .id = "fit-" + std::to_string(round_),
                              .model = model_,
                              .config = {{"round", std::int64_t{round_}}, {"lr", 0.1}}});
  }

  Status fitted(const std::string& client, const Fitted& answer) override {
    std::vector<std::vector<float>> values;
    for (const Array& array : answer.weights) {
      values.emplace_back(array.size());
      if (const Status status = array.to_floats(values.back()); !status.ok()) {
        refused(client, status.error());
        return status;
      }
    }
    Status out;
    change([&]() REQUIRES(mutex_) {
      bool fits = values.size() == weights_.size();
      for (std::size_t i = 0; fits && i < values.size(); ++i)
        fits = values[i].size() == weights_[i].size();
      if (!fits) {
        out = Error(Code::kInvalid, "the weights do not fit");
        refusals_.push_back(out.error());
        ++round_;  // so that the test ends
        return;
      }
      updates_[client] = {static_cast<double>(answer.examples), std::move(values)};
      if (updates_.size() == options_.clients) average();
    });
    return out;
  }

  Status evaluated(const std::string& client, const Evaluated& answer) override {
    change([&]() REQUIRES(mutex_) { evaluated_[client] = answer; });
    return {};
  }

  Status initial(const std::string&, const Initial& answer) override {
    std::vector<std::vector<float>> values;
    for (const Array& array : answer.weights) {
      values.emplace_back(array.size());
      TRY_VOID(array.to_floats(values.back()));
    }
    change([&]() REQUIRES(mutex_) {
      weights_ = std::move(values);
      use_weights();
    });
    return {};
  }

  void failed(const std::string& client, const Task&, const Error& error) override {
    refused(client, error);
  }
  void on_change(std::function<void()> changed) override {
    const MutexLock lock(mutex_);
    changed_ = std::move(changed);
  }

  std::vector<std::vector<float>> weights() const {
    const MutexLock lock(mutex_);
    return weights_;
  }
  std::vector<Error> refusals() const {
    const MutexLock lock(mutex_);
    return refusals_;
  }
  std::map<std::string, Evaluated> evaluations() const {
    const MutexLock lock(mutex_);
    return evaluated_;
  }
  std::set<std::string> gone() const {
    const MutexLock lock(mutex_);
    return left_;
  }
  std::set<std::string> present() const {
    const MutexLock lock(mutex_);
    return present_;
  }

 private:
  template <typename Work>
  void change(const Work& work) {
    std::function<void()> changed;
    {
      const MutexLock lock(mutex_);
      work();
      changed = changed_;
    }
    if (changed) changed();
  }
  void refused(const std::string&, const Error& error) {
    change([&]() REQUIRES(mutex_) {
      refusals_.push_back(error);
      ++round_;
    });
  }
  void use_weights() REQUIRES(mutex_) {
    auto model = std::make_shared<Model>();
    model->id = std::to_string(++version_);
    for (const auto& values : weights_) {
      model->tensors.push_back(
          {.name = std::to_string(model->tensors.size()),
           .tensor = tensor::Tensor::of<float>(tensor::DType::kFp32,
                                               {static_cast<std::int64_t>(values.size())}, values)
                         .value()});
    }
    model_ = std::move(model);
  }
  void average() REQUIRES(mutex_) {
    double samples = 0;
    for (const auto& [client, update] : updates_) samples += update.first;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      for (std::size_t j = 0; j < weights_[i].size(); ++j) {
        double sum = 0;
        for (const auto& [client, update] : updates_)
          sum += update.first * static_cast<double>(update.second[i][j]);
        weights_[i][j] = static_cast<float>(sum / samples);
      }
    }
    updates_.clear();
    ++round_;
    use_weights();
  }

  const Options options_;
  mutable Mutex mutex_;
  std::function<void()> changed_ GUARDED_BY(mutex_);
  std::set<std::string> present_ GUARDED_BY(mutex_), left_ GUARDED_BY(mutex_);
  std::string asked_ GUARDED_BY(mutex_);
  std::vector<std::vector<float>> weights_ GUARDED_BY(mutex_);
  std::shared_ptr<const Model> model_ GUARDED_BY(mutex_);
  int version_ GUARDED_BY(mutex_) = 0;
  int round_ GUARDED_BY(mutex_) = 1;
  std::map<std::string, std::pair<double, std::vector<std::vector<float>>>> updates_
      GUARDED_BY(mutex_);
  std::map<std::string, Evaluated> evaluated_ GUARDED_BY(mutex_);
  std::vector<Error> refusals_ GUARDED_BY(mutex_);
};

}  // namespace varda::flower::testing
