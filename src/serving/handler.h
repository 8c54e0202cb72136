// HTTP handlers of the model server: the Open Inference Protocol over a repository, health and
// metrics.
#pragma once

#include <atomic>
#include <string>

#include "base/metrics.h"
#include "net/http.h"
#include "oip/infer.h"
#include "serving/repository.h"

namespace varda::serving {

/// Collaborators of the handlers; every one outlives the handlers.
struct Service {
  Repository& repository;
  metrics::Registry& registry;
  const std::atomic<bool>& draining;  // true: readiness is off, but requests are still answered
  std::string server_name = "varda-serve";
  oip::Limits limits;
  joint::TierRuntime* joint =
      nullptr;            // the repository's TierRuntime; null: no model has further tiers
  bool confined = false;  // file access is limited to what serving needs
};

/// Body size limit by method and path: `infer_bytes_max` for inference, else 64 KiB.
std::size_t body_bytes_max_of(std::string_view method, std::string_view path,
                              std::size_t infer_bytes_max);

/// /v2/…, /healthz and /readyz. Short inferences run on the caller's thread (executor.h).
net::Handler make_handler(const Service& service);

/// /healthz, /readyz and /metrics.
net::Handler make_admin_handler(const Service& service);

}  // namespace varda::serving
