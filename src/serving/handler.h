// The model server's HTTP: the Open Inference Protocol over a repository, health and metrics.
#pragma once

#include <atomic>
#include <string>

#include "base/metrics.h"
#include "net/http.h"
#include "oip/infer.h"
#include "serving/repository.h"

namespace varda::serving {

/// What handlers need; all of it outlives them.
struct Service {
  Repository& repository;
  metrics::Registry& registry;
  const std::atomic<bool>& draining;  // true: not ready, while everything is still answered
  std::string server_name = "varda-serve";
  oip::Limits limits;
  joint::Center* joint = nullptr;  // the repository's; null: no model has other tiers
  bool confined = false;           // the process opens no files but those that serving needs
};

/// Largest request body by method and path: `infer_bytes_max` for inference, 64 KiB for anything else.
std::size_t body_bytes_max_of(std::string_view method, std::string_view path, std::size_t infer_bytes_max);

/// /v2/…, /healthz and /readyz. Short inferences run on the caller's thread (executor.h).
net::Handler make_handler(const Service& service);

/// /healthz, /readyz and /metrics.
net::Handler make_admin_handler(const Service& service);

}  // namespace varda::serving
