// UpdateCheck: the content of an offered update, before it counts.
//
//   const UpdateCheck check({.layout = layout, .masked = settings.secure.has_value()});
//   auto checked = check.file(fs, path, task, base);
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
    double norm_max = 0;  // L2 norm; 0: no limit
    bool needs_loss = false, needs_control = false;
    bool masked = false;  // updates of secure aggregation
  };
  explicit UpdateCheck(Options options) : options_(std::move(options)) {}

  using Checked = Result<CheckedUpdate, federated::Refusal>;
  /// `norm`: from an UpdateScan over the bytes of the file, or nothing.
  Checked file(os::FileSystem& fs, const os::Path& path, std::optional<double> norm,
               const std::string& task, const codec::Sha256& base) const;
  Checked bytes(std::string bytes, const std::string& task, const codec::Sha256& base) const;

 private:
  federated::UpdateLimits limits(const std::string& task, const codec::Sha256& base) const;
  Checked checked(federated::UpdateReader::Opened opened) const;

  const Options options_;
};

/// Small and finite, whatever a client sends.
federated::Metrics bounded_metrics(const codec::Json& json);

}  // namespace varda::aggregator
