#include "bindings.h"

NB_MODULE(_muster, m) {
  muster::BindErrors(m);
  muster::BindTensors(m);
  muster::BindGraph(m);
  muster::BindProtos(m);
  muster::BindGradients(m);
  muster::BindSession(m);
  muster::BindServer(m);
}
