// The second half of the seeds of the JetStream engine.
import { simulationTests } from "../shard.js";

simulationTests(76, 75, "nats");
