// Manager: brings labels to kept samples, and labelled samples into Datasets.
//
// One task looks at the spools of the work list (spool/folder.h):
//
//   label/CLASS/FILE              a person's label             -> DATASET/CLASS/ID.EXT
//   pending/ID with a pseudoLabel a later tier's label         -> DATASET/LABEL/ID.EXT
//   other pending samples         the bigger model is asked, and its label moves the sample
//
// Every move is one rename, or a copy before a removal between two disks. A sample has one name on
// the whole way, so a repeated move replaces the same file.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/component.h"
#include "agent/core/state_store.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "net/http.h"
#include "os/file_system.h"
#include "os/readable_tree.h"
#include "spool/folder.h"

namespace varda::agent::samples {

class Manager final : public core::NodeComponent {
 public:
  struct Options {
    os::Path root;                            // the spool of a model is ROOT/KEY
    std::chrono::milliseconds period{1000};   // between looks
    std::chrono::milliseconds settled{2000};  // a dropped file has not changed for so long
    std::size_t asks_max = 64;                // of the bigger model, in one look
    // Later in a look no further question starts: a slow model gets one in each look.
    std::chrono::milliseconds asks_time{500};
    std::chrono::milliseconds timeout{5000};  // of one question
    std::chrono::milliseconds pause{10000};   // after a bigger model that did not answer
    const Clock* clock = nullptr;             // null: the system clock
    metrics::Registry* metrics = nullptr;     // varda_agent_samples_moved_total
  };
  /// The files of datasets below the allowed roots; null: none are allowed.
  using OpenTree = std::function<Result<std::unique_ptr<os::ReadableTree>>()>;

  /// All references outlive the manager.
  Manager(Options options, os::FileSystem& fs, OpenTree datasets, net::HttpClient& http,
          core::StateStore& state_store, Rng& rng);

  void apply(const core::WorkList& list) override;
  void load() override;
  std::vector<runtime::Task> tasks() override;
  core::ListId put_report(api::EdgeNodeStatus& status,
                          const api::EdgeNodeStatus& live) const override;

 private:
  struct Problem {
    std::string reason, message;
  };
  struct Look;  // at one spool
  /// Pending samples of one spool that need no look, because their facts are known.
  struct Known {
    enum class Need : std::uint8_t {
      kNothing,
      kAnswer
    };  // kAnswer: the bigger model was not asked
    api::EdgeSamples work;
    bool to_dataset = false;
    std::map<std::string, Need> samples;  // by id
  };

  std::optional<SteadyTime> due() const;
  void step(const Context& ctx);
  api::EdgeSamplesReport look(const Context& ctx, const api::EdgeSamples& work,
                              api::EdgeSamplesReport before);
  void take_labelled(Look& look);
  void take_pending(const Context& ctx, Look& look);
  bool may_ask(const Look& look) const;
  /// Returns the need of the sample from now on. Nothing: its facts must be read again.
  std::optional<Known::Need> take_one(const Context& ctx, Look& look, const std::string& id);
  /// False: the sample is still pending.
  bool move_pseudo_labelled(Look& look, const spool::Facts& facts);
  /// Adds the answer to the facts, and the label if the bigger model is sure. False: no answer.
  bool ask(const Context& ctx, Look& look, spool::Facts& facts);
  Result<spool::ClassScore> answer_of(const Context& ctx, Look& look, const spool::Facts& facts,
                                      const std::string& bytes, std::string& version);
  void count_moved(const char* origin);
  std::optional<Problem> dataset_problem(const std::string& path) const;
  Status move(const os::Path& from, const os::Path& folder, const std::string& file);
  void save();

  const Options options_;
  const Clock& clock_;
  os::FileSystem& fs_;
  const OpenTree datasets_;
  net::HttpClient& http_;
  core::StateStore& state_store_;
  Rng& rng_;

  struct Pause {
    SteadyTime until;
    Problem problem;
  };
  std::map<std::string, Pause> paused_;  // by URL; of the task
  std::map<std::string, Known> known_;   // by key; of the task

  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  bool changed_ GUARDED_BY(mutex_) = false;  // another work list
  core::ListId list_ GUARDED_BY(mutex_);
  std::vector<api::EdgeSamples> work_ GUARDED_BY(mutex_);
  std::map<std::string, api::EdgeSamplesReport> reports_ GUARDED_BY(mutex_);  // by key
  SteadyTime next_ GUARDED_BY(mutex_){};
  bool published_ GUARDED_BY(mutex_) = false;
};

}  // namespace varda::agent::samples
