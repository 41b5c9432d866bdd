#include "bindings.h"

NB_MODULE(_muster, m) {
  // Threads that live as long as the process keep what they use.
  nb::set_leak_warnings(false);
  muster::BindErrors(m);
  muster::BindTensors(m);
  muster::BindGraph(m);
  muster::BindProtos(m);
  muster::BindGradients(m);
  muster::BindSession(m);
  muster::BindServer(m);
  muster::BindTrain(m);
  muster::BindSummaries(m);
  muster::BindSaver(m);
  muster::BindMetaGraph(m);
  muster::BindVariables(m);
  muster::BindOptimizers(m);
  muster::BindMonitored(m);
  muster::BindHooks(m);
  muster::BindAllReduce(m);
  muster::BindShardQueue(m);
  muster::BindSyncReplicas(m);
  muster::BindFunctions(m);
  muster::BindCheckpoint(m);
}
