// For tests that call a reconciler directly.
#pragma once

#include "runtime/manager.h"

namespace varda::controllers {

/// Starts the caches and indexes that a reconciler of T reads, without its worker. Call before
/// manager.run().
template <runtime::Object T, typename Reconciler>
void watch_for(runtime::Manager& manager, Reconciler& reconciler) {
  const runtime::ControllerSpec spec = runtime::make_controller<T>(reconciler);
  for (const runtime::ControllerSpec::Source& source : spec.sources) {
    runtime::Informer& informer = manager.add_informer(source.informer);
    if (source.index_of) informer.add_index(source.index, source.index_of);
  }
}

}  // namespace varda::controllers
