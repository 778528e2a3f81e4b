// The second half of the seeds of the JetStream engine.
import { simulationTests } from "../shard.js";

simulationTests(101, 100, "nats");
