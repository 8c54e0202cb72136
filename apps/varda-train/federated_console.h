// Progress of a federated client: lines on standard error, or reports to the node's agent.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "codec/json.h"
#include "participant/client.h"
#include "reporter.h"
#include "training/run.h"

namespace varda::trainapp {

/// "23.4 KiB".
std::string byte_text(std::uint64_t bytes);

/// The state of a client, from the events of the protocol and of the training. One thread calls.
class FederatedProgress : public participant::Observer, public training::Observer {
 public:
  void waiting() override;
  void paused(const std::string& reason) override;
  void downloading(const participant::Task& task) override;
  void training(const participant::Task& task) override;
  void trained(const participant::Task& task, const participant::TrainedUpdate& update) override;
  void uploading(const std::string& task, std::uint64_t bytes) override;
  void accepted(const std::string& task, std::uint64_t bytes) override;
  void dropped(const std::string& task, int status, const std::string& message) override;
  void evaluated(const participant::Task& task, const participant::Evaluated& result) override;
  void skipped(const participant::Task& task, const Error& error) override;
  void retrying(const std::string& message) override;
  void progress(const training::Progress& progress) override;
  void epoch(const training::EpochRecord&) override {}

  /// {round, rounds, phase, samples, loss, metrics, accepted, dropped}
  codec::Json data() const;

 protected:
  /// A line for people about something that happened.
  virtual void line(const std::string& text) = 0;
  /// `phase` or the numbers of the training changed.
  virtual void changed() = 0;

  std::string phase_ = "Waiting";
  std::int64_t round_ = 0, rounds_ = 0;
  std::uint64_t samples_ = 0, step_ = 0, steps_ = 0;
  double loss_ = 0;
  codec::Json metrics_ = codec::Json::object();
  std::uint64_t accepted_ = 0, dropped_ = 0;
  std::string trained_;  // text of the update that travels

 private:
  void begin(const participant::Task& task, const char* phase);
  std::string round_text() const;
};

class FederatedConsole final : public FederatedProgress {
 public:
  FederatedConsole(std::FILE* out, bool terminal, const Clock& clock)
      : out_(out), terminal_(terminal), clock_(clock) {}
  ~FederatedConsole() override { clear(); }

 private:
  void line(const std::string& text) override;
  void changed() override;
  void clear();

  std::FILE* const out_;
  const bool terminal_;
  const Clock& clock_;
  std::optional<SteadyTime> drawn_;
};

/// Also logs each line.
class FederatedReporter final : public FederatedProgress {
 public:
  /// `reporter` may be null: then there are only logs.
  explicit FederatedReporter(Reporter* reporter) : reporter_(reporter) {}

 private:
  void line(const std::string& text) override;
  void changed() override;

  Reporter* const reporter_;
};

}  // namespace varda::trainapp
