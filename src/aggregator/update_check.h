// UpdateCheck: the content of an offered update, before it counts.
//
//   const UpdateCheck check({.layout = layout, .masked = settings.secure.has_value()});
//   auto checked = check.file(fs, path, std::nullopt, {.task = task, .base = base});
//   if (!checked.ok()) refuse(checked.error().reason, checked.error().error.message());
#pragma once

#include <string>

#include "base/result.h"
#include "codec/digest.h"
#include "codec/json.h"
#include "federated/round_machine.h"
#include "federated/update.h"
#include "federated/weights.h"
#include "os/file_system.h"

namespace varda::aggregator {

/// The facts of an update that count. Masked updates have one sample and no norm.
struct CheckedUpdate {
  double samples = 1;
  double norm = 0, control_norm = 0;
  federated::Metrics metrics;
};

/// Constant; thread-safe.
class UpdateCheck {
 public:
  struct Options {
    federated::LayoutPointer layout;
    bool needs_loss = false, needs_control = false;
    bool masked = false;  // updates of secure aggregation
  };
  explicit UpdateCheck(Options options) : options_(std::move(options)) {}

  /// The values of one check.
  struct Expected {
    std::string task;
    codec::Sha256 base;
    double norm_max = 0;  // L2 norm; 0: no limit. Changes between rounds.
  };
  using Checked = Result<CheckedUpdate, federated::Refusal>;
  /// `norm`: from an UpdateScan over the bytes of the file, or nothing.
  Checked file(os::FileSystem& fs, const os::Path& path, std::optional<double> norm,
               const Expected& expected) const;
  Checked bytes(std::string bytes, const Expected& expected) const;

 private:
  Checked checked(federated::UpdateReader::Opened opened) const;

  const Options options_;
};

/// At most 64 finite metrics with names of at most 64 bytes, whatever a client sends.
federated::Metrics bounded_metrics(const federated::Metrics& metrics);
federated::Metrics bounded_metrics(const codec::Json& json);

}  // namespace varda::aggregator
