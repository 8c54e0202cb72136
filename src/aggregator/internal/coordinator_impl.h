// The members of Coordinator's implementation. coordinator.cc has what clients and the owner call;
// rounds.cc has the work of the thread that runs the rounds.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aggregator/coordinator.h"
#include "aggregator/next_model.h"
#include "aggregator/secure_round.h"
#include "aggregator/update_check.h"
#include "base/mutex.h"
#include "federated/masked_update.h"

namespace varda::aggregator {

class CoordinatorImpl final : public Coordinator {
 public:
  using Json = codec::Json;
  using Sha256 = codec::Sha256;
  using AcceptedUpdate = federated::AcceptedUpdate;
  using MaskedMean = federated::MaskedMean;
  using Metrics = federated::Metrics;
  using RoundMachine = federated::RoundMachine;
  using Settings = federated::Settings;
  using Step = federated::Step;
  using Task = federated::Task;
  using Verdict = federated::Verdict;
  using Weights = federated::Weights;

  CoordinatorImpl(Options options, const ModelFile& model, os::FileSystem& fs)
      : options_(std::move(options)),
        fs_(fs),
        layout_(model.weights().layout_pointer()),
        clock_(*options_.clock) {}

  Status prepare(const ModelFile& model, os::Path directory);

  Status seen(const std::string& client) override EXCLUDES(mutex_);
  void left(const std::string& client) override EXCLUDES(mutex_);
  std::optional<Task> task_for(const std::string& client) override EXCLUDES(mutex_);
  Json task_json(const std::string& client, const Task& task) override EXCLUDES(mutex_);
  Verdict judge(const std::string& client, std::string_view task, const Sha256& digest) override
      EXCLUDES(mutex_);
  Result<Submitted> submit(const std::string& client, const std::string& task, const Sha256& digest,
                           const UploadedFile& file) override;
  Result<Submitted> submit_bytes(const std::string& client, const std::string& task,
                                 std::string bytes) override;
  Status refuse(const std::string& client, const std::string& task, const Error& why) override
      EXCLUDES(mutex_);
  Status evaluated(const std::string& client, std::string_view task, double samples,
                   const Metrics& metrics) override EXCLUDES(mutex_);
  Status put_secure(const std::string& client, std::string_view task, SecureRound::Message message,
                    const Json& json) override EXCLUDES(mutex_);
  Result<std::optional<Json>> secure_answer(const std::string& client, std::string_view task,
                                            SecureRound::Message message) override EXCLUDES(mutex_);
  std::uint64_t update_bytes_max() const override { return update_bytes_max_; }
  Store& store() override { return *store_; }
  void count_bytes(std::uint64_t received, std::uint64_t sent) override {
    received_bytes_.fetch_add(received, std::memory_order_relaxed);
    sent_bytes_.fetch_add(sent, std::memory_order_relaxed);
  }

  void on_change(std::function<void()> changed) override EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    listeners_.push_back(std::move(changed));
  }
  void set_participants(std::optional<std::set<std::string>> participants) override
      EXCLUDES(mutex_);
  Status update_settings(const Settings& settings) override EXCLUDES(mutex_);
  Result<std::optional<SteadyTime>> work(const Context& ctx) override;
  Status run(const Context& ctx) override;
  Snapshot snapshot() override EXCLUDES(mutex_);
  const federated::LayoutPointer& layout() const override { return layout_; }
  Result<Weights> weights() override;
  std::string metrics_csv() override EXCLUDES(mutex_);

 private:
  RoundMachine::Options machine_options(const std::string& model) const;
  Status restore(const Json& state);
  Result<AcceptedUpdate> accepted_update(const StoredUpdate& stored);
  void note(const Step& step) REQUIRES(mutex_);
  std::string state_text() REQUIRES(mutex_);
  /// The state of this version or a later one is on the disk.
  Status persist() EXCLUDES(mutex_, saving_);
  void notify() EXCLUDES(mutex_);
  void find_lost(SteadyTime now) REQUIRES(mutex_);
  Status aggregate(const Context& ctx) EXCLUDES(mutex_);
  Verdict verdict(const std::string& client, std::string_view task, const Sha256& digest)
      REQUIRES(mutex_);
  /// A secure round for the open task.
  void begin_secure() REQUIRES(mutex_);
  /// Ends the steps of the secure round that are complete, or at their deadline.
  void advance_secure() REQUIRES(mutex_);
  void repeat_round(RoundMachine::RepeatCause cause, const std::string& why) REQUIRES(mutex_);
  /// The mean of a secure round. Nothing: shares are missing, or the round was given up.
  Result<std::optional<MaskedMean>> secure_mean(const std::vector<AcceptedUpdate>& updates,
                                                const NextModel::Round& round,
                                                const Settings& settings) EXCLUDES(mutex_);
  Status add_vectors(const std::vector<AcceptedUpdate>& updates, const NextModel::Round& round,
                     const std::string& task, privacy::SumServer& server);
  /// Removes files of updates that the repetition of a round dropped.
  Status remove_dropped(const std::vector<AcceptedUpdate>& updates, std::int64_t round)
      EXCLUDES(mutex_);
  Status collect_garbage() EXCLUDES(mutex_);
  /// The present round is the last one if the budget is too small for another.
  void end_at_budget() REQUIRES(mutex_);
  bool is_participant(const std::string& client) const REQUIRES(mutex_) {
    return !participants_ || participants_->contains(client);
  }
  using Check = std::function<UpdateCheck::Checked(const RoundMachine::TrainTask&)>;
  using Place = std::function<Status(const StoredUpdate&)>;
  /// `check` reads the update; `place` gives its file the name.
  Result<Submitted> accept(const std::string& client, const std::string& task, const Sha256& digest,
                           const Check& check, const Place& place);

  Options options_;
  os::FileSystem& fs_;
  const federated::LayoutPointer layout_;
  const Clock& clock_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<NextModel> next_model_;  // of the thread that runs the rounds, but needs()
  std::optional<UpdateCheck> check_;
  std::uint64_t update_bytes_max_ = 0;
  std::string job_;

  // Held while the state is written, so that an older state never replaces a newer one. Taken
  // before mutex_.
  Mutex saving_;
  std::uint64_t saved_ GUARDED_BY(saving_) = 0;

  Mutex mutex_;
  CondVar work_;
  Settings settings_ GUARDED_BY(mutex_);
  std::optional<RoundMachine> machine_ GUARDED_BY(mutex_);
  NextModel::State beside_ GUARDED_BY(mutex_);
  std::optional<SecureRound> secure_ GUARDED_BY(mutex_);  // of the open round
  // All clients of one sum divide by the same number, whatever the settings become meanwhile.
  double secure_weight_max_ GUARDED_BY(mutex_) = 0;
  std::optional<std::set<std::string>> participants_ GUARDED_BY(mutex_);
  std::map<std::string, SteadyTime> seen_ GUARDED_BY(mutex_);
  std::uint64_t version_ GUARDED_BY(mutex_) = 1;  // of the state
  std::uint64_t durable_ GUARDED_BY(mutex_) = 0;  // on the disk
  bool tasks_changed_ GUARDED_BY(mutex_) = false;
  bool woken_ GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> listeners_ GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> received_bytes_{0}, sent_bytes_{0};
};

}  // namespace varda::aggregator
